-- Events of the side table that may be tried now, after the place (?6, ?7). Its index of due times serves it, then
-- its index of keys for the events held behind them; blocks no writer. One more head shows whether there is more.
with ready as materialized (
    select seq, lane, key, state = 'delayed' as delayed, due_at, row_number() over (order by due_at, seq) as place
    from (
        select seq, lane, key, state, due_at
        from {events_parked}
        where due_at <= ?1 and due_at >= ?6 and (due_at, seq) > (?6, ?7) and lane in (select value from json_each(?2))
        order by due_at, seq
        limit ?3 + 1
    )
),
member as materialized (
    select r.place, r.due_at, r.seq as head, p.seq, 0 as delayed
    from ready as r
    join {events_parked} as p on p.seq in (
        select q.seq
        from {events_parked} as q
        where not r.delayed and q.lane = r.lane and q.key = r.key and q.state <> 'delayed' and q.seq >= r.seq
            -- No event behind a blocking dead event is sent.
            and q.seq < coalesce(
                (
                    select min(b.seq)
                    from {events_parked} as b
                    where b.lane = r.lane and b.key = r.key and b.state = 'blocked'
                ),
                9223372036854775807
            )
        order by q.seq
        -- With few keys, long chains; with many keys, a part of each chain.
        limit max(8, ?3 / (select count(*) from ready))
    )
    union all
    select r.place, r.due_at, r.seq, r.seq, 1 from ready as r where r.delayed
),
measured as (
    select
        m.place, m.due_at, m.head, m.seq, m.delayed,
        {sizes}
    from member as m
    -- A row whose event was deleted by hand is skipped, so it does not hide the events after it.
    left join {events} as e on e.seq = m.seq
),
fetched as (
    select
        *,
        iif(bytes <= ?5, bytes, 0) + iif(header_bytes <= {headers_max}, header_bytes, 0)
            + iif(name_bytes <= {names_max}, name_bytes, 0) as fetched
    from measured
),
sized as (
    select
        *, count(*) over () as candidates,
        sum(fetched) over (order by place, seq rows unbounded preceding) as running
    from fetched
    order by place, seq
    limit ?3
)
select
    {columns ?5}, s.candidates, s.delayed,
    s.place < (select count(*) from ready), s.due_at, s.head
from sized as s
left join {events} as e on e.seq = s.seq
where s.running <= ?4 or s.running = s.fetched
order by s.place, s.seq
