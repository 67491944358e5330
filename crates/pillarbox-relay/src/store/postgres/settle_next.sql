-- Keys that lost events of the side table: what is first of the rest becomes due, unless one of the key is due at its own
-- time already; those with nothing failing or held left are returned. The index on (lane, key, seq) serves it; locks
-- the rows that become due.
-- $1 lanes  $2 keys, each pair once
with heads as materialized (
    select k.lane, k.key, first.seq,
           exists (select from {events_parked} p
                   where p.lane = k.lane and p.key = k.key and p.due_at is not null and p.state <> 'delayed') as has_due
    from unnest($1::smallint[], $2::text[]) k (lane, key)
    left join lateral (
        select p.seq
        from {events_parked} p
        where p.lane = k.lane and p.key = k.key and p.state <> 'delayed'
        order by p.seq
        limit 1
    ) first on true
),
woken as (
    update {events_parked} p
    set due_at = clock_timestamp()
    from heads
    where p.seq = heads.seq and not heads.has_due
)
select lane, key from heads where seq is null
