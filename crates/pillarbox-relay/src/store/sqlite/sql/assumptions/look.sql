-- The last seq that was ever assigned, and the highest low mark; and whether the counter of the event log's positions is
-- behind what has expired. Reads a few rows and 256; blocks no writer.
-- ?1 the table's name  ?2 the name of the event log
select coalesce((select seq from sqlite_sequence where name = ?1), 0) as taken,
       (select coalesce(max(low_mark), 0) from {events_lanes}) as mark,
       exists (
           select 1
           from {events_records}
           where space = 'event_log' and name = 'expired' and place = 0
             and cast(value as integer) > coalesce((select seq from sqlite_sequence where name = ?2), 0)
       ) as log_is_behind
