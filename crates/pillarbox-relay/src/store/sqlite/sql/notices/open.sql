-- What open dead letters died of. Walks the index of open ones from end to end; takes no lock that a writer minds.
-- ?1 count
select d.fingerprint, count(*) as n, max(d.died_at)
from {dead} as d
where d.state = 'open'
group by d.fingerprint
order by n desc, d.fingerprint
limit ?1
