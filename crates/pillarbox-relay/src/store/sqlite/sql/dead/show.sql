-- One dead letter with its event. Served by the index of ids and the main table's primary key; takes no lock that a
-- writer minds.
-- ?1 id  ?2 payload_bytes_max
select
    e.seq, e.lane, e.id, iif(s.name_bytes <= {names_max} or octet_length(e.topic) <= {name_max}, e.topic, null), iif(s.name_bytes <= {names_max}, e.stream, null),
    -- Where the texts are too large, their size.
    iif(s.name_bytes <= {names_max}, e.event_type, s.name_bytes), e.schema_version, iif(s.name_bytes <= {names_max}, e.aggregate_type, null),
    iif(s.name_bytes <= {names_max} or octet_length(e.aggregate_id) <= {name_max}, e.aggregate_id, null), e.aggregate_version,
    iif(s.name_bytes <= {names_max} or octet_length(e.partition_key) <= {name_max}, e.partition_key, null),
    iif(s.name_bytes <= {names_max}, e.project_id, null), iif(s.name_bytes <= {names_max}, e.user_id, null), e.created_at, e.available_at, e.attempts,
    e.max_attempts, e.base_delay_ms, e.max_delay_ms, e.backoff_multiplier,
    iif(s.header_bytes <= {headers_max}, e.headers, s.header_bytes),
    iif(s.bytes <= ?2, e.payload, null), s.bytes,
    d.seq, d.id, d.topic, d.key, d.event_type, d.reason, d.error, d.attempts, d.sink, d.relay, d.fingerprint, d.died_at,
    d.state,
    exists (select 1 from {events_parked} as p where p.seq = d.seq and p.state = 'blocked'),
    d.failures
from {dead} as d
left join {events} as e on e.seq = d.seq
left join (
    select
        seq, octet_length(payload) as bytes, octet_length(headers) as header_bytes,
        octet_length(topic) + octet_length(event_type) + octet_length(aggregate_type) + octet_length(aggregate_id)
            + coalesce(octet_length(stream), 0) + coalesce(octet_length(partition_key), 0)
            + coalesce(octet_length(project_id), 0) + coalesce(octet_length(user_id), 0) as name_bytes
    from {events}
) as s on s.seq = e.seq
where d.id = ?1
