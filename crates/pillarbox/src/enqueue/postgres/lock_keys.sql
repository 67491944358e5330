-- Each key's lock, until the transaction ends, in an order that is the same for all. Before the insert, in a statement of
-- its own: the events' seqs are taken when all locks are held. Locks nothing else.
-- $1 keys
select null::uuid as id, null::text as class, count(held.lock) as pending, null::bigint as soft, null::bigint as hard,
       null::bigint as oldest_ms, null::bigint as delay_ms, null::bigint as retry_after_ms, null::boolean as refused
from (
    select pg_advisory_xact_lock(key.hash) as lock
    from (
        select distinct hashtextextended('pillarbox key {events} ' || k, 0) as hash
        from unnest($1::text[]) k
        order by hash
        offset 0
    ) key
    offset 0
) held
