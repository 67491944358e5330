-- Revived events join the side table; which event of a key goes first is settled after this. Served by both primary keys.
insert into {events_parked} (seq, lane, key, state, due_at)
select e.seq, e.lane, coalesce(e.partition_key, e.aggregate_id), 'failed', null
from {events} as e
where e.seq in (select value from json_each(?1)) and e.status = 'failed'
on conflict (seq) do update set state = 'failed'
