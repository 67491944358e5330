-- Puts events into the side table, or changes what they wait for there. The main table's status, written just before in
-- the same transaction, tells which of them may wait at all. Served by both primary keys.
insert into {events_parked} (seq, lane, key, state, due_at)
select p.value ->> 'seq', p.value ->> 'lane', p.value ->> 'key', p.value ->> 'state', p.value ->> 'due_at'
from json_each(?1) as p
join {events} as e on e.seq = p.value ->> 'seq'
where e.status = p.value ->> 'state'
on conflict (seq) do update set state = excluded.state, due_at = excluded.due_at
