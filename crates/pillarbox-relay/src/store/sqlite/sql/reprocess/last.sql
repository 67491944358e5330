-- When a schedule ran last. Served by the primary key; takes no lock that a writer minds.
-- ?1 name
select last_run_at from {events_schedules} where name = ?1
