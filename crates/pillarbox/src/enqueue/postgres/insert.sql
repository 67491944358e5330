-- Events into the application's transaction, in the order given. The unique index on id refuses the second of two; locks
-- only what it inserts. A relay that sleeps is told, once per transaction however often this runs.
with given as (
    select *
    from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::text[], $8::bigint[],
                $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::integer[],
                $16::bigint[], $17::bigint[], $18::double precision[]) with ordinality
         g (id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
            partition_key, payload, headers, project_id, user_id, available_at, max_attempts,
            base_delay_ms, max_delay_ms, backoff_multiplier, place)
),
written as (
    insert into {events} (id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id,
                          aggregate_version, partition_key, payload, headers, project_id, user_id, available_at,
                          max_attempts, base_delay_ms, max_delay_ms, backoff_multiplier)
    select id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id,
           aggregate_version, partition_key, payload, headers::jsonb, project_id, user_id,
           timestamptz 'epoch' + available_at * interval '1 microsecond',
           max_attempts, base_delay_ms, max_delay_ms, backoff_multiplier
    from given
    order by place
    on conflict (id) do nothing
    returning id
),
woken as materialized (
    select pg_notify($19::text, '') from {events_asleep} where last_value > extract(epoch from now())
)
select id, (select count(*) from woken) from written
