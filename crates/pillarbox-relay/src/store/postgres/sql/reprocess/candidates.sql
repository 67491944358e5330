-- The oldest open dead letters that match, are old enough, were not replayed too often and have their event. The index of open ones serves it in
-- its order, the index on recoveries' seq the count; locks nothing.
-- $1 to $8: the filter  $9 age in microseconds  $10 replays below  $11 count
select d.id
from {dead} d
join {events} e on e.seq = d.seq
where d.state = 'open'
  and {filter}
  and d.died_at <= clock_timestamp() - $9 * interval '1 microsecond'
  and (select count(*) from {events_recoveries} r where r.seq = d.seq and r.action = 'replayed') < $10
order by d.seq
limit $11
