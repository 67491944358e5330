octet_length(e.payload) as bytes, octet_length(e.headers) as header_bytes,
        octet_length(e.id) + octet_length(e.topic) + octet_length(e.event_type) + octet_length(e.aggregate_type) + octet_length(e.aggregate_id)
            + coalesce(octet_length(e.stream), 0) + coalesce(octet_length(e.partition_key), 0)
            + coalesce(octet_length(e.project_id), 0) + coalesce(octet_length(e.user_id), 0) as name_bytes