-- The end of what has expired, and the latest position. The primary keys serve it.
select (select cast(value as bigint) from {events_records} where space = 'event_log' and name = 'expired' and place = 0),
       (select max(position) from {events_log})
