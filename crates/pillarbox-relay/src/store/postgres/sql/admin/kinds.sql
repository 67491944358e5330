-- The kinds of the latest events, the most frequent first, each with its latest event. The primary key serves it,
-- from its end; locks nothing. It reads no column that settling changes, and no payload except the examples.
-- $1 events  $2 kinds  $3 payload_bytes_max
with latest as materialized (
    select seq, left(event_type, 255) as event_type, schema_version, left(topic, 255) as topic, left(stream, 255) as stream,
           -- Another program may have written any time; the library's times have a range.
           least(greatest(created_at, timestamptz '0001-01-01 00:00:00+00'), timestamptz '9999-01-01 00:00:00+00') as created_at
    from {events} order by seq desc limit $1
),
kinds as (
    select event_type, schema_version, topic, stream, count(*) as count, max(created_at) as last_seen, max(seq) as seq
    from latest group by event_type, schema_version, topic, stream
    order by count(*) desc, max(seq) desc limit $2
)
select (select count(*) from latest),
       (select (extract(epoch from min(created_at)) * 1000000)::bigint from latest),
       k.event_type, k.schema_version, k.topic, k.stream, k.count, (extract(epoch from k.last_seen) * 1000000)::bigint,
       left(e.aggregate_type, 255), case when octet_length(e.payload) <= $3 then e.payload::text end
from kinds k
join {events} e on e.seq = k.seq
order by k.count desc, k.seq desc
