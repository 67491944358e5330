-- The time now, and when a schedule ran last. The primary key serves it; locks nothing.
-- $1 name
select (extract(epoch from clock_timestamp()) * 1000000)::bigint,
       (select (extract(epoch from s.last_run_at) * 1000000)::bigint from {events_schedules} s where s.name = $1)
