-- The oldest open dead letters that match, are old enough, were not replayed too often and still have their event.
-- The index of open ones serves it in its order, the index on recoveries' seq the count; locks nothing.
-- $1 to $8: the filter  $9 age in microseconds  $10 replays below  $11 count
select d.id
from {dead} as d
join {events} as e on e.seq = d.seq {and_same_id}
where d.state = 'open'
  and {filter}
  and d.died_at <= {before $9}
  and (select count(*) from {events_recoveries} as r where r.seq = d.seq and r.action = 'replayed') < $10
order by d.seq
limit $11
