-- Puts dead events that block their keys into the side table, before all later events of the key. Primary keys find
-- all three; locks the rows.
-- $1 seqs
insert into {events_parked} (seq, lane, key, state, due_at)
select e.seq, e.lane, d.key, 'blocked', null
from {events} e
join {dead} d on d.seq = e.seq
where e.seq = any($1::bigint[]) and e.status = 'dead' and d.state = 'open'
on conflict (seq) do nothing
