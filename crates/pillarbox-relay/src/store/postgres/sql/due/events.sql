-- Events of the side table that may be tried now, after a place: delayed events alone, and the heads of keys with
-- the events held behind them. The index on (lane, due_at) finds the heads, the one on (lane, key, seq) their
-- followers, the primary key the events; it stops at $2 events. One more head and one more event show whether there
-- is more. Locks nothing.
-- $1 lanes  $2 events  $3 payload_bytes_max  $4 bytes  $5 and $6 the place: microseconds since 1970, seq
with after as materialized (
    select timestamptz 'epoch' + $5::bigint * interval '1 microsecond' as due_at
),
heads as materialized (
    select h.*, row_number() over (order by h.due_at, h.seq) as place
    from (
        select p.lane, p.key, p.seq, p.due_at, p.state = 'delayed' as delayed
        from {events_parked} p, after a
        where p.lane = any($1::smallint[]) and p.due_at <= now()
          and p.due_at >= a.due_at and (p.due_at, p.seq) > (a.due_at, $6::bigint)
        order by p.due_at, p.seq
        limit $2 + 1
    ) h
),
waiting as materialized (
    select m.seq, h.delayed, h.place, h.due_at, h.seq as head
    from heads h
    -- No event behind a blocking dead event is sent.
    left join lateral (
        select b.seq
        from {events_parked} b
        where b.lane = h.lane and b.key = h.key and b.state = 'blocked'
        order by b.seq
        limit 1
    ) blocked on not h.delayed
    cross join lateral (
        select p.seq
        from {events_parked} p
        where p.lane = h.lane and p.key = h.key
          and p.seq between h.seq and case when h.delayed then h.seq else coalesce(blocked.seq - 1, 9223372036854775807) end
          and (h.delayed or p.state <> 'delayed')
        order by p.seq
        limit $2 + 1
    ) m
    -- In the order of the heads, because a nested loop looks them up one by one. A sort here would read all chains
    -- first.
    limit $2 + 1
),
sized as (
    select e.*, w.delayed, w.n, w.place, w.due_at, w.head,
           {sizes}
    from (select *, row_number() over (order by place, seq) as n from waiting) w
    -- A row whose event was deleted by hand is skipped, so it does not hide the events after it.
    left join {events} e on e.seq = w.seq
),
page as (
    select z.*, sum({fetched z $3}) over (order by z.n rows unbounded preceding) as running from sized z
),
soon as (
    select min(first.due_at) as due_at
    from unnest($1::smallint[]) l (lane)
    cross join lateral (
        select p.due_at
        from {events_parked} p
        where p.lane = l.lane and p.due_at > now()
        order by p.due_at
        limit 1
    ) first
)
select (extract(epoch from s.due_at - clock_timestamp()) * 1000000)::bigint,
       p.n,
       (select count(*) from waiting),
       p.place < (select count(*) from heads),
       (extract(epoch from p.due_at) * 1000000)::bigint,
       p.head,
       p.delayed,
       p.status,
       {columns $3}
from soon s
left join page p on p.n = 1 or (p.n <= $2 and p.running <= $4)
