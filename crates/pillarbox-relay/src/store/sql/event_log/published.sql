'published', {now}, e.seq, e.id, e.topic, e.stream, e.event_type, e.schema_version, e.aggregate_type, e.aggregate_id,
       e.aggregate_version, e.partition_key, e.project_id, e.user_id, e.headers ->> 'correlation-id', e.created_at, e.attempts,
       null, null, e.headers, e.payload
