-- One dead letter with its event and everything that was done about it. Indexes on id and on recoveries' seq serve it;
-- locks nothing.
-- $1 id  $2 payload_bytes_max
select d.seq, d.id, d.topic, d.key, d.event_type, d.reason, d.error, d.attempts, d.sink, d.relay, d.fingerprint,
       (extract(epoch from d.died_at) * 1000000)::bigint, d.state,
       exists (select 1 from {events_parked} p where p.seq = d.seq and p.state = 'blocked'),
       d.failures::text,
       (select coalesce(jsonb_agg(jsonb_build_object('action', r.action, 'at', r.at, 'by', r.by, 'why', r.why,
                                                     'new_id', r.new_id) order by r.n), '[]')::text
        from {events_recoveries} r
        where r.seq = d.seq),
       e.seq, e.lane, e.id, e.topic, e.stream, e.event_type, e.schema_version, e.aggregate_type, e.aggregate_id,
       e.aggregate_version, e.partition_key, case when octet_length(e.payload) <= $2 then e.payload end,
       octet_length(e.payload), e.headers, e.project_id, e.user_id, e.created_at, e.available_at, e.attempts,
       e.max_attempts, e.base_delay_ms, e.max_delay_ms, e.backoff_multiplier
from {dead} d
left join {events} e on e.seq = d.seq
where d.id = $1
