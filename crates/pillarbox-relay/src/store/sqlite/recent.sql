-- The latest events, whatever became of them. Walks the primary key from its end; takes no lock that a writer minds.
-- A payload larger than the limit is not loaded: such a row is left out.
select
    e.seq, e.lane, e.id, e.topic, e.stream, e.event_type, e.schema_version, e.aggregate_type, e.aggregate_id,
    e.aggregate_version, e.partition_key, e.project_id, e.user_id, e.created_at, e.available_at, e.attempts,
    e.max_attempts, e.base_delay_ms, e.max_delay_ms, e.backoff_multiplier, e.headers,
    iif(octet_length(e.payload) <= ?2, e.payload, null), octet_length(e.payload), e.status
from {events} as e
order by e.seq desc
limit ?1
