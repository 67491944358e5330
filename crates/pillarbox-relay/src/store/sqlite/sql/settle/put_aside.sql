-- Marks events as held or delayed. The primary key serves it; writes no index.
update {events} as e
set status = p.value ->> 'state'
from json_each(?1) as p
where e.seq = p.value ->> 'seq' and e.status not in ('published', 'dead')
