octet_length(e.payload) as payload_bytes,
           -- The stored size. A compressed value is decompressed here, unless its compressed size is already too
           -- large.
           case when pg_column_compression(e.headers) is null or pg_column_size(e.headers) > {headers_max}
                then pg_column_size(e.headers)
                else octet_length(e.headers::text) end as header_bytes,
           octet_length(e.id) + octet_length(e.topic) + octet_length(e.event_type) + octet_length(e.aggregate_type)
               + octet_length(e.aggregate_id) + coalesce(octet_length(e.stream), 0)
               + coalesce(octet_length(e.partition_key), 0) + coalesce(octet_length(e.project_id), 0)
               + coalesce(octet_length(e.user_id), 0) as name_bytes