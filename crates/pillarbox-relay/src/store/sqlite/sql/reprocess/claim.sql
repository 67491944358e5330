-- A schedule runs now, unless another relay was first. Served by the primary key.
-- ?1 now  ?2 name  ?3 when it ran last, or null
insert into {events_schedules} (name, last_run_at) values (?2, ?1)
on conflict (name) do update set last_run_at = excluded.last_run_at where last_run_at = ?3
