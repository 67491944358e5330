-- What of the side table may be tried now: delayed events alone, and keys' heads with what is held behind them. The
-- index on (lane, due_at) finds the heads, the one on (lane, key, seq) their followers, the primary key the events; it
-- stops at $2 events. Locks nothing.
-- $1 lanes  $2 events  $3 payload_bytes_max  $4 bytes
with heads as materialized (
    select p.lane, p.key, p.seq, p.state = 'delayed' as delayed,
           case when p.state = 'delayed' then p.seq else coalesce(blocked.seq - 1, 9223372036854775807) end as last
    from {events_parked} p
    -- Nothing goes out from behind a blocked event.
    left join lateral (
        select b.seq
        from {events_parked} b
        where b.lane = p.lane and b.key = p.key and b.state = 'blocked'
        order by b.seq
        limit 1
    ) blocked on true
    where p.lane = any($1::smallint[]) and p.due_at <= now()
    order by p.due_at, p.seq
    limit $2
),
waiting as materialized (
    select m.seq, h.delayed
    from heads h
    cross join lateral (
        select p.seq
        from {events_parked} p
        where p.lane = h.lane and p.key = h.key
          and p.seq between h.seq and h.last
          and (h.delayed or p.state <> 'delayed')
        order by p.seq
        limit $2
    ) m
    limit $2
),
page as (
    select e.*, w.delayed, w.n,
           sum(case when octet_length(e.payload) <= $3 then octet_length(e.payload) else 0 end)
               over (order by w.n rows unbounded preceding) as running
    from (select seq, delayed, row_number() over () as n from waiting) w
    join {events} e on e.seq = w.seq
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
       p.delayed,
       p.status,
       p.seq, p.lane, p.id, p.topic, p.stream, p.event_type, p.schema_version, p.aggregate_type, p.aggregate_id,
       p.aggregate_version, p.partition_key, case when octet_length(p.payload) <= $3 then p.payload end,
       octet_length(p.payload), p.headers, p.project_id, p.user_id, p.created_at, p.available_at, p.attempts,
       p.max_attempts, p.base_delay_ms, p.max_delay_ms, p.backoff_multiplier
from soon s
left join page p on p.n = 1 or p.running <= $4
