-- What of the side table may be tried now. Served by its index of due times, then by its index of keys for those held
-- behind; takes no lock that a writer minds.
with ready as materialized (
    select seq, lane, key, state, due_at
    from {events_parked}
    where due_at <= ?1 and lane in (select value from json_each(?2))
    order by due_at
    limit ?3
),
-- A key comes with its failing event, else with one delayed event.
first as materialized (
    select
        lane, key, min(due_at) as due_at, max(state <> 'delayed') as failing,
        coalesce(min(iif(state <> 'delayed', seq, null)), min(seq)) as seq
    from ready
    group by lane, key
),
member as materialized (
    select f.due_at, f.seq as head, p.seq, p.state
    from first as f
    join {events_parked} as p on p.seq in (
        select q.seq
        from {events_parked} as q
        where f.failing and q.lane = f.lane and q.key = f.key and q.state <> 'delayed' and q.seq >= f.seq
            -- Nothing goes out from behind a blocked event.
            and q.seq < coalesce(
                (
                    select min(b.seq)
                    from {events_parked} as b
                    where b.lane = f.lane and b.key = f.key and b.state = 'blocked'
                ),
                9223372036854775807
            )
        order by q.seq
        -- Few keys: long chains. Many: a piece of each.
        limit max(8, ?3 / (select count(*) from first))
    )
    union all
    select f.due_at, f.seq, f.seq, 'delayed' from first as f where not f.failing
),
sized as (
    select
        m.due_at, m.head, m.seq, m.state, octet_length(e.payload) as bytes, octet_length(e.payload) <= ?5 as fits,
        sum(iif(octet_length(e.payload) <= ?5, octet_length(e.payload), 0))
            over (order by m.due_at, m.head, m.seq rows unbounded preceding) as running,
        count(*) over () as candidates
    from member as m
    join {events} as e on e.seq = m.seq
    order by m.due_at, m.head, m.seq
    limit ?3
)
select
    e.seq, e.lane, e.id, e.topic, e.stream, e.event_type, e.schema_version, e.aggregate_type, e.aggregate_id,
    e.aggregate_version, e.partition_key, e.project_id, e.user_id, e.created_at, e.available_at, e.attempts,
    e.max_attempts, e.base_delay_ms, e.max_delay_ms, e.backoff_multiplier, e.headers,
    iif(s.fits, e.payload, null), s.bytes, s.candidates, s.state = 'delayed'
from sized as s
join {events} as e on e.seq = s.seq
where s.running <= ?4 or s.running = iif(s.fits, s.bytes, 0)
order by s.due_at, s.head, s.seq
