-- The latest events, whatever became of them. The primary key serves it, from its end. Locks nothing. A payload larger
-- than the limit is not loaded: such a row is left out.
-- $1 events  $2 payload_bytes_max
select case when e.status = 'pending' and p.seq is not null then 'delayed' else e.status end,
       e.seq, e.lane, e.id, e.topic, e.stream, e.event_type, e.schema_version, e.aggregate_type, e.aggregate_id,
       e.aggregate_version, e.partition_key, case when octet_length(e.payload) <= $2 then e.payload end,
       octet_length(e.payload), e.headers, e.project_id, e.user_id, e.created_at, e.available_at, e.attempts,
       e.max_attempts, e.base_delay_ms, e.max_delay_ms, e.backoff_multiplier
from (select * from {events} order by seq desc limit $1) e
left join {events_parked} p on p.seq = e.seq and e.status = 'pending'
order by e.seq desc
