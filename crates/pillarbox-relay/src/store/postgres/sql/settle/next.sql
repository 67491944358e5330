-- Updates keys whose events in the side table changed. The first event of each key that is not delayed becomes due:
-- at its own time if it has one, else now. A blocking dead event is never due. No other event of the key is due.
-- Keys with no failing, held or blocking dead event left are returned. The index on (lane, key, seq) finds the
-- first, the one on (lane, key) of due rows the others; locks the rows it changes.
-- $1 lanes  $2 keys, each pair once
with heads as materialized (
    select k.lane, k.key, first.seq, first.due_at, first.state
    from unnest($1::smallint[], $2::text[]) k (lane, key)
    left join lateral (
        select p.seq, p.due_at, p.state
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
    where p.seq = heads.seq and heads.due_at is null and heads.state <> 'blocked'
),
-- An event that was committed late can come before one that has already failed.
overtaken as (
    update {events_parked} p
    set due_at = null
    from heads
    where p.lane = heads.lane and p.key = heads.key and p.due_at is not null and p.state <> 'delayed'
      and p.seq > heads.seq
)
select lane, key from heads where seq is null
