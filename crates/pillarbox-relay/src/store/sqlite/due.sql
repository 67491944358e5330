-- What of the side table may be tried now, behind the place (?6, ?7). Served by its index of due times, then by its index of
-- keys for those held behind; takes no lock that a writer minds. One more head tells whether there is more.
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
            -- Nothing goes out from behind a blocked event.
            and q.seq < coalesce(
                (
                    select min(b.seq)
                    from {events_parked} as b
                    where b.lane = r.lane and b.key = r.key and b.state = 'blocked'
                ),
                9223372036854775807
            )
        order by q.seq
        -- Few keys: long chains. Many: a piece of each.
        limit max(8, ?3 / (select count(*) from ready))
    )
    union all
    select r.place, r.due_at, r.seq, r.seq, 1 from ready as r where r.delayed
),
sized as (
    select
        m.place, m.due_at, m.head, m.seq, m.delayed, octet_length(e.payload) as bytes,
        octet_length(e.payload) <= ?5 as fits, count(*) over () as candidates,
        sum(iif(octet_length(e.payload) <= ?5, octet_length(e.payload), 0))
            over (order by m.place, m.seq rows unbounded preceding) as running
    from member as m
    -- A row whose event was deleted by hand is passed over, and so does not hide what is behind it.
    left join {events} as e on e.seq = m.seq
    order by m.place, m.seq
    limit ?3
)
select
    e.seq, e.lane, e.id, e.topic, e.stream, e.event_type, e.schema_version, e.aggregate_type, e.aggregate_id,
    e.aggregate_version, e.partition_key, e.project_id, e.user_id, e.created_at, e.available_at, e.attempts,
    e.max_attempts, e.base_delay_ms, e.max_delay_ms, e.backoff_multiplier, e.headers,
    iif(s.fits, e.payload, null), s.bytes, s.candidates, s.delayed,
    s.place < (select count(*) from ready), s.due_at, s.head
from sized as s
left join {events} as e on e.seq = s.seq
where s.running <= ?4 or s.running = iif(s.fits, s.bytes, 0)
order by s.place, s.seq
