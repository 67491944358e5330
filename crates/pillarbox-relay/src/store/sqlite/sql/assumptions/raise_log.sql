-- Sets the counter of the event log's positions to the end of what has expired. SQLite itself never takes a position
-- that the log has.
-- ?1 the name of the event log
insert into sqlite_sequence (name, seq)
select ?1, cast(value as integer)
from {events_records}
where space = 'event_log' and name = 'expired' and place = 0
