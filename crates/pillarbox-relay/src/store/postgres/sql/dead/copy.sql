-- Copies dead events under new ids, in the order of their seq, and records who did so. The primary key finds the
-- events; locks nothing.
-- $1 seqs  $2 by  $3 why
with chosen as materialized (
    select e.*, gen_random_uuid()::text as new_id
    from {events} e
    where e.seq = any($1::bigint[])
    order by e.seq
),
told as (
    insert into {events_recoveries} (seq, action, by, why, new_id) select seq, 'replayed', $2, $3, new_id from chosen
)
insert into {events} (id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                      partition_key, payload, headers, project_id, user_id, max_attempts, base_delay_ms, max_delay_ms,
                      backoff_multiplier)
select c.new_id, c.topic, c.stream, c.event_type, c.schema_version, c.aggregate_type, c.aggregate_id,
       c.aggregate_version, c.partition_key, c.payload, c.headers || jsonb_build_object('replay-of', c.id),
       c.project_id, c.user_id, c.max_attempts, c.base_delay_ms, c.max_delay_ms, c.backoff_multiplier
from chosen c
order by c.seq
