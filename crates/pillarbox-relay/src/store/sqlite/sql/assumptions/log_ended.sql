-- The latest position of the event log that was taken, and the latest that it has or had. Reads three rows.
-- ?1 the name of the event log
select coalesce((select seq from sqlite_sequence where name = ?1), 0) as taken,
       max(
           coalesce((select max(position) from {events_log}), 0),
           coalesce((
               select cast(value as integer)
               from {events_records}
               where space = 'event_log' and name = 'expired' and place = 0
           ), 0)
       ) as ended
