-- The oldest open dead letters that match and still have their event. Walks the index of open ones in its order, with the
-- main table's primary key; the transaction it runs in has the write lock.
-- ?1 to ?8: the filter  ?9 count
select d.seq, e.lane, d.key
from {dead} as d
join {events} as e on e.seq = d.seq
where d.state = 'open' and {filter}
order by d.seq
limit ?9
