-- Marks events as held or delayed. Served by the primary key; writes no index.
update {events} as e
set status = p.value ->> 'state'
from json_each(?1) as p
where e.seq = p.value ->> 'seq' and e.status not in ('published', 'dead')
