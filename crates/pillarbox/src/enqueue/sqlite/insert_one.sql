-- Inserts one event in the application's transaction, unless a class of topics is at its limit: pressure.sql
-- then finds out which class, and insert.sql writes the events of other classes. It is one statement because
-- each one is passed to another thread and back: to check first took 60 µs more.
insert into {events} (
    lane, id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, partition_key,
    project_id, user_id, created_at, available_at, max_attempts, base_delay_ms, max_delay_ms, backoff_multiplier,
    headers, payload
)
select ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20
where not exists (
    select 1 from {events_pressure} p left join sqlite_sequence s on s.name = ?21
    where p.pending + max(coalesce(s.seq, 0) - p.at_seq, 0) >= p.hard
)
on conflict (id) do nothing
