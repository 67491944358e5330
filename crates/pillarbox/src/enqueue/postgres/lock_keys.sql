-- Locks each key until the transaction ends, in the same order everywhere. This is a separate statement
-- before the insert, so that the events' seqs are taken while all locks are held. Locks nothing else. If a
-- topic's class is at its hard limit, it locks nothing, and the answer says so. Above the soft limit it waits
-- a little first, while no lock is held.
-- $1 keys, $2 topics
with pressure as materialized (
    select p.*
    -- If nothing is limited, the function is not even called.
    from (select true as limited from {events_pressure} limit 1) there
    cross join lateral {events_pressure_of}(case when there.limited then $2::text[] end) p
),
slowed as materialized (
    select pg_sleep(max(delay_ms) / 1000.0)
    from pressure
    where not exists (select from pressure where refused)
    having max(delay_ms) > 0
)
select null::text as id, null::text as class, count(held.lock) as pending, null::bigint as soft, null::bigint as hard,
       null::bigint as oldest_ms, null::bigint as delay_ms, null::bigint as retry_after_ms, null::boolean as refused
from (
    select pg_advisory_xact_lock(key.hash) as lock
    from (
        select distinct hashtextextended('pillarbox key {events} ' || k, 0) as hash
        from unnest($1::text[]) k
        order by hash
        offset 0
    ) key
    where not exists (select from pressure where refused)
      -- Always true, but only after the delay.
      and (select count(*) from slowed) >= 0
    offset 0
) held
union all
select null, class, pending, soft, hard, (extract(epoch from clock_timestamp() - oldest_at) * 1000)::bigint,
       delay_ms, retry_after_ms, refused
from pressure
where refused
