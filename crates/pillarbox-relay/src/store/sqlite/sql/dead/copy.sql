-- Copies dead events under new ids, in the order of their seq. The primary key serves it.
-- ?1 now  ?2 seqs, each with the copy's id
insert into {events} (
    lane, id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, partition_key,
    project_id, user_id, created_at, max_attempts, base_delay_ms, max_delay_ms, backoff_multiplier, headers, payload
)
select
    e.lane, c.value ->> 1, e.topic, e.stream, e.event_type, e.schema_version, e.aggregate_type, e.aggregate_id,
    e.aggregate_version, e.partition_key, e.project_id, e.user_id, ?1, e.max_attempts, e.base_delay_ms, e.max_delay_ms,
    e.backoff_multiplier,
    -- Headers that can't be read are copied unchanged: the copy dies of them as well, and blocks no other event.
    iif(json_valid(e.headers), json_set(e.headers, '$."replay-of"', e.id), e.headers), e.payload
from json_each(?2) as c
join {events} as e on e.seq = c.value ->> 0
order by e.seq
