-- The last seq that was ever given out, and the highest low mark. Reads one row and 256; takes no lock that a writer minds.
-- ?1 the table's name
select coalesce((select seq from sqlite_sequence where name = ?1), 0), (select coalesce(max(low_mark), 0) from {events_lanes})
