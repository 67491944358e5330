'published', {now}, e.seq, e.id, e.topic, e.stream, e.event_type, e.schema_version, e.aggregate_type, e.aggregate_id,
       e.aggregate_version, e.partition_key, e.project_id, e.user_id, substr(e.headers ->> 'correlation-id', 1, 255), e.created_at, e.attempts,
       null, null, e.headers, e.payload, {delivery}
