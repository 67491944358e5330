-- The oldest open dead letters that match, with their lanes (null if the event no longer exists). The index of open
-- ones serves it in its order, the primary key the events; locks the letters.
-- $1 to $8: the filter  $9 count
select d.seq, e.lane, d.key
from {dead} as d
left join {events} as e on e.seq = d.seq {and_same_id}
where d.state = 'open' and {filter}
order by d.seq
limit $9
{lock d}
