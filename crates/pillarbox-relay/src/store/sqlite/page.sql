-- The next pending events of some lanes. Walks the primary key from the last seq read; takes no lock that a writer minds.
-- A payload's size comes from the row's header, so one that is too large is never loaded.
with candidate as materialized (
    select seq, octet_length(payload) as bytes
    from {events}
    where seq > ?1 and status = 'pending' and lane in (select value from json_each(?2))
    order by seq
    limit ?3
),
sized as (
    select
        seq,
        bytes,
        bytes <= ?5 as fits,
        sum(iif(bytes <= ?5, bytes, 0)) over (order by seq rows unbounded preceding) as running,
        count(*) over () as candidates
    from candidate
)
select
    e.seq, e.lane, e.id, e.topic, e.stream, e.event_type, e.schema_version, e.aggregate_type, e.aggregate_id,
    e.aggregate_version, e.partition_key, e.project_id, e.user_id, e.created_at, e.available_at, e.attempts,
    e.max_attempts, e.base_delay_ms, e.max_delay_ms, e.backoff_multiplier, e.headers,
    iif(s.fits, e.payload, null), s.bytes, s.candidates
from sized as s
join {events} as e on e.seq = s.seq
-- Whatever its size, the first one comes.
where s.running <= ?4 or s.running = iif(s.fits, s.bytes, 0)
order by s.seq
