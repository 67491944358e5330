-- The next pending events of some lanes. Walks the primary key from the last seq read; takes no lock that a writer minds.
-- Sizes come from the row's header, so what is too large is never loaded.
with candidate as materialized (
    select
        seq, octet_length(payload) as bytes, octet_length(headers) as header_bytes,
        octet_length(topic) + octet_length(event_type) + octet_length(aggregate_type) + octet_length(aggregate_id)
            + coalesce(octet_length(stream), 0) + coalesce(octet_length(partition_key), 0)
            + coalesce(octet_length(project_id), 0) + coalesce(octet_length(user_id), 0) as name_bytes
    from {events}
    where seq > ?1 and status = 'pending' and lane in (select value from json_each(?2))
    order by seq
    limit ?3
),
fetched as (
    select
        seq, bytes, header_bytes, name_bytes,
        iif(bytes <= ?5, bytes, 0) + iif(header_bytes <= {headers_max}, header_bytes, 0)
            + iif(name_bytes <= {names_max}, name_bytes, 0) as fetched
    from candidate
),
sized as (
    select
        seq, bytes, header_bytes, name_bytes, fetched,
        sum(fetched) over (order by seq rows unbounded preceding) as running,
        count(*) over () as candidates
    from fetched
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
    iif(s.bytes <= ?5, e.payload, null), s.bytes, s.candidates
from sized as s
join {events} as e on e.seq = s.seq
-- Whatever its size, the first one comes.
where s.running <= ?4 or s.running = s.fetched
order by s.seq
