-- Inserts one event in the application's transaction. The unique index on id decides whether it is new. The
-- transaction already holds the database's write lock, or takes it here.
insert into {events} (
    lane, id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, partition_key,
    project_id, user_id, created_at, available_at, max_attempts, base_delay_ms, max_delay_ms, backoff_multiplier,
    headers, payload
)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
on conflict (id) do nothing
