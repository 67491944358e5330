-- A schedule runs now, unless another relay was first. The primary key serves it; locks the schedule's row.
-- $1 name  $2 when it ran last, in microseconds, or null
with claimed as (
    insert into {events_schedules} as s (name, last_run_at)
    values ($1, clock_timestamp())
    on conflict (name) do update set last_run_at = excluded.last_run_at
    where s.last_run_at = timestamptz 'epoch' + $2::bigint * interval '1 microsecond'
    returning 1
)
select count(*) from claimed
