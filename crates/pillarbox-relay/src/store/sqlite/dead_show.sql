-- One dead letter with its event. Served by the index of ids and the main table's primary key; takes no lock that a
-- writer minds.
-- ?1 id  ?2 payload_bytes_max
select
    e.seq, e.lane, e.id, e.topic, e.stream, e.event_type, e.schema_version, e.aggregate_type, e.aggregate_id,
    e.aggregate_version, e.partition_key, e.project_id, e.user_id, e.created_at, e.available_at, e.attempts,
    e.max_attempts, e.base_delay_ms, e.max_delay_ms, e.backoff_multiplier, e.headers,
    iif(octet_length(e.payload) <= ?2, e.payload, null), octet_length(e.payload),
    d.seq, d.id, d.topic, d.key, d.event_type, d.reason, d.error, d.attempts, d.sink, d.relay, d.fingerprint, d.died_at,
    d.state,
    exists (select 1 from {events_parked} as p where p.seq = d.seq and p.state = 'blocked'),
    d.failures
from {dead} as d
left join {events} as e on e.seq = d.seq
where d.id = ?1
