l.position, l.status, {micros l.at}, l.seq, l.id, l.topic, l.stream, l.event_type, l.schema_version, l.aggregate_type,
       l.aggregate_id, l.aggregate_version, l.partition_key, l.project_id, l.user_id, {micros l.created_at}, l.attempts,
       l.reason, l.error, {text l.headers}, l.payload, {text l.failures}, l.sink, l.relay
