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
measured as (
    select
        m.place, m.due_at, m.head, m.seq, m.delayed,
        octet_length(e.payload) as bytes, octet_length(e.headers) as header_bytes,
        octet_length(e.topic) + octet_length(e.event_type) + octet_length(e.aggregate_type) + octet_length(e.aggregate_id)
            + coalesce(octet_length(e.stream), 0) + coalesce(octet_length(e.partition_key), 0)
            + coalesce(octet_length(e.project_id), 0) + coalesce(octet_length(e.user_id), 0) as name_bytes
    from member as m
    -- A row whose event was deleted by hand is passed over, and so does not hide what is behind it.
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
    e.seq, e.lane, e.id, iif(s.name_bytes <= {names_max} or octet_length(e.topic) <= {name_max}, e.topic, null), iif(s.name_bytes <= {names_max}, e.stream, null),
    -- Where the texts are too large, their size.
    iif(s.name_bytes <= {names_max}, e.event_type, s.name_bytes), e.schema_version, iif(s.name_bytes <= {names_max}, e.aggregate_type, null),
    iif(s.name_bytes <= {names_max} or octet_length(e.aggregate_id) <= {name_max}, e.aggregate_id, null), e.aggregate_version,
    iif(s.name_bytes <= {names_max} or octet_length(e.partition_key) <= {name_max}, e.partition_key, null),
    iif(s.name_bytes <= {names_max}, e.project_id, null), iif(s.name_bytes <= {names_max}, e.user_id, null), e.created_at, e.available_at, e.attempts,
    e.max_attempts, e.base_delay_ms, e.max_delay_ms, e.backoff_multiplier,
    iif(s.header_bytes <= {headers_max}, e.headers, s.header_bytes),
    iif(s.bytes <= ?5, e.payload, null), s.bytes, s.candidates, s.delayed,
    s.place < (select count(*) from ready), s.due_at, s.head
from sized as s
left join {events} as e on e.seq = s.seq
where s.running <= ?4 or s.running = s.fetched
order by s.place, s.seq
