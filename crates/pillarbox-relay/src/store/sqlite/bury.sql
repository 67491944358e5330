-- Writes the dead letters of events that were just marked dead. Served by the primary keys of both tables.
insert into {dead} (seq, id, reason, error, attempts, died_at, topic, key, event_type)
select
    e.seq, e.id, d.value ->> 'reason', d.value ->> 'error', d.value ->> 'attempts', ?1, e.topic,
    coalesce(e.partition_key, e.aggregate_id), e.event_type
from json_each(?2) as d
join {events} as e on e.seq = d.value ->> 'seq'
where e.status = 'dead'
on conflict (seq) do nothing
