-- Forgets the counter of the event log's positions.
-- ?1 the name of the event log
delete from sqlite_sequence where name = ?1
