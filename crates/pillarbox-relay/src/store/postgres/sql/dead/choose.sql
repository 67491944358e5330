-- The oldest open dead letters that match, with their lanes (null where the event is gone), kept for this transaction. The index of open ones serves
-- it in its order, the primary key the events; locks the letters.
-- $1 to $8: the filter  $9 count
select d.seq, e.lane, d.key
from {dead} d
left join {events} e on e.seq = d.seq and e.id = d.id
where d.state = 'open' and {filter}
order by d.seq
limit $9
for update of d
