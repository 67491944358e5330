-- The kinds of the latest events, the most frequent first, each with its latest event. The primary key serves it,
-- from its end; blocks no writer. Another program may have written values of any type.
with latest as materialized (
    select
        seq, substr(cast(event_type as text), 1, 255) as event_type, cast(schema_version as integer) as schema_version,
        substr(cast(topic as text), 1, 255) as topic, substr(cast(stream as text), 1, 255) as stream,
        cast(created_at as integer) as created_at
    from {events}
    order by seq desc
    limit $1
),
kinds as (
    select
        event_type, schema_version, topic, stream, count(*) as count, max(created_at) as last_seen, max(seq) as seq
    from latest
    group by event_type, schema_version, topic, stream
    order by count(*) desc, max(seq) desc
    limit $2
)
select
    (select count(*) from latest), (select min(created_at) from latest),
    k.event_type, k.schema_version, k.topic, k.stream, k.count, k.last_seen,
    substr(cast(e.aggregate_type as text), 1, 255),
    iif(octet_length(e.payload) <= $3, cast(e.payload as blob), null)
from kinds as k
join {events} as e on e.seq = k.seq
order by k.count desc, k.seq desc
