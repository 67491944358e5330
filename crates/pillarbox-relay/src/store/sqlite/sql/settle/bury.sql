-- Writes the open letters of events that are about to be marked dead, with the latest 20 failures. It runs before
-- they leave the side table, which has the earlier failures. The primary keys of all three tables serve it.
insert into {dead} (
    seq, id, topic, key, event_type, reason, error, attempts, sink, relay, fingerprint, failures, died_at
)
select
    e.seq,
    -- Cut to the length that a readable event can have.
    substr(e.id, 1, 255), substr(e.topic, 1, 255),
    substr(coalesce(e.partition_key, e.aggregate_id), 1, 255), substr(e.event_type, 1, 255),
    d.value ->> 'reason',
    d.value ->> '$.failure.error', d.value ->> 'attempts', d.value ->> '$.failure.sink', d.value ->> '$.failure.relay',
    d.value ->> 'fingerprint',
    iif(
        d.value ->> 'tried',
        json_insert(
            iif(json_array_length(p.failures) >= 20, json_remove(p.failures, '$[0]'), coalesce(p.failures, '[]')),
            '$[#]', json(d.value -> 'failure')
        ),
        coalesce(p.failures, '[]')
    ),
    ?1
from json_each(?2) as d
join {events} as e on e.seq = d.value ->> 'seq'
left join {events_parked} as p on p.seq = e.seq
where e.status not in ('published', 'dead')
on conflict (seq) do update set
    state = 'open', id = excluded.id, topic = excluded.topic, key = excluded.key, event_type = excluded.event_type, reason = excluded.reason, error = excluded.error, attempts = excluded.attempts,
    sink = excluded.sink, relay = excluded.relay, fingerprint = excluded.fingerprint, failures = excluded.failures,
    died_at = excluded.died_at
