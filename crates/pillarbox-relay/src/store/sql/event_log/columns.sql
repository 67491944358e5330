status, at, seq, id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
    partition_key, project_id, user_id, correlation_id, created_at, attempts, reason, error, headers, payload, failures, sink,
    relay
