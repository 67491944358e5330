-- Inserts events in the application's transaction, in the order given. The unique index on id skips
-- duplicates. Locks only what it inserts. If a topic's class is at its hard limit, it inserts nothing, and
-- the answer says so. Above the soft limit it waits a little first. Notifies a sleeping relay, once per
-- transaction however often this runs.
with given as (
    select *
    from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::text[], $8::bigint[],
                $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::integer[],
                $16::bigint[], $17::bigint[], $18::double precision[]) with ordinality
         g (id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
            partition_key, payload, headers, project_id, user_id, available_at, max_attempts,
            base_delay_ms, max_delay_ms, backoff_multiplier, place)
),
pressure as materialized (
    select p.*
    -- If nothing is limited, the function is not even called.
    from (select true as limited from {events_pressure} limit 1) there
    cross join lateral {events_pressure_of}(case when there.limited then $20::text[] end) p
),
slowed as materialized (
    select pg_sleep(max(delay_ms) / 1000.0)
    from pressure
    where not exists (select from pressure where refused)
    having max(delay_ms) > 0
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
    where not exists (select from pressure where refused)
      -- Always true, but only after the delay: the seqs are taken after it.
      and (select count(*) from slowed) >= 0
    order by place
    on conflict (id) do nothing
    returning id
),
woken as materialized (
    select pg_notify($19::text, '') from {events_asleep} where last_value > extract(epoch from now())
)
-- For a written event, class is null and the other columns mean nothing.
select id, null::text as class, (select count(*) from woken) as pending, null::bigint as soft, null::bigint as hard,
       null::bigint as oldest_ms, null::bigint as delay_ms, null::bigint as retry_after_ms, null::boolean as refused
from written
union all
select null, class, pending, soft, hard, (extract(epoch from clock_timestamp() - oldest_at) * 1000)::bigint,
       delay_ms, retry_after_ms, refused
from pressure
where refused
