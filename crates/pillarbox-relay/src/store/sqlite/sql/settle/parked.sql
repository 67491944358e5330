-- Puts events into the side table, or updates them there. A failed event keeps the latest 20 failures. The main
-- table's status, written before in the same transaction, decides which of them may wait at all. Both primary keys
-- serve it.
insert into {events_parked} as p (seq, lane, key, state, due_at, failures)
select
    a.value ->> 'seq', a.value ->> 'lane', a.value ->> 'key', a.value ->> 'state', a.value ->> 'due_at',
    iif(a.value -> 'failure' is null, '[]', json_array(json(a.value -> 'failure')))
from json_each(?1) as a
join {events} as e on e.seq = a.value ->> 'seq'
where e.status = a.value ->> 'state'
on conflict (seq) do update set
    state = excluded.state,
    due_at = excluded.due_at,
    failures = iif(
        excluded.failures = '[]',
        p.failures,
        json_insert(
            iif(json_array_length(p.failures) < 20, p.failures, json_remove(p.failures, '$[0]')),
            '$[#]', json(excluded.failures -> 0)
        )
    )
