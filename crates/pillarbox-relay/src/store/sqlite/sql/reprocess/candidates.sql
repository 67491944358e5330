-- The oldest open dead letters that match, are old enough, were not replayed too often and have their event. Walks the index of open ones in its
-- order, with the recoveries' index; takes no lock that a writer minds.
-- ?1 to ?8: the filter  ?9 died before  ?10 replays below  ?11 count
select d.id
from {dead} as d
join {events} as e on e.seq = d.seq
where d.state = 'open' and {filter}
    and d.died_at <= ?9
    and (select count(*) from {events_recoveries} as r where r.seq = d.seq and r.action = 'replayed') < ?10
order by d.seq
limit ?11
