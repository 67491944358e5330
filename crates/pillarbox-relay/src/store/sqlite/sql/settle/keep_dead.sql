-- Puts dead events that block their keys into the side table. The primary keys of all three tables serve it.
-- ?1 seqs
insert into {events_parked} (seq, lane, key, state, due_at)
select e.seq, e.lane, d.key, 'blocked', null
from {events} as e
join {dead} as d on d.seq = e.seq
where e.seq in (select value from json_each(?1)) and e.status = 'dead' and d.state = 'open'
on conflict (seq) do nothing
