-- Appends events that this transaction has marked as dead, without payload and headers, which may be unreadable. Texts
-- are cut to the length that a readable event can have. A death that was appended before is left out: its letter is not
-- newer than the entry. The primary keys and the log's index of dead ids serve it.
-- $1 seqs
insert into {events_log} (
    {log_columns}
)
select 'dead', {now}, e.seq, e.id, substr(e.topic, 1, 255), substr(e.stream, 1, 255), substr(e.event_type, 1, 255),
       e.schema_version, substr(e.aggregate_type, 1, 255), substr(e.aggregate_id, 1, 255), e.aggregate_version,
       substr(e.partition_key, 1, 255), substr(e.project_id, 1, 255), substr(e.user_id, 1, 255),
       substr({correlation e.headers}, 1, 255), e.created_at, e.attempts, d.reason, d.error, null, null,
       d.failures, d.sink, d.relay
from {events} as e
join {dead} as d on d.seq = e.seq {and_same_id}
where {in e.seq $1}
  and e.status = 'dead'
  and (select count(*) from {events_log} as l where l.id = e.id and l.status = 'dead' and l.at >= d.died_at) = 0
order by e.seq
