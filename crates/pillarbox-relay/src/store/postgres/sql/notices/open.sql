-- What open dead letters died of. The index of open ones serves it, from end to end; locks nothing.
-- $1 count
select d.fingerprint, count(*), (extract(epoch from max(d.died_at)) * 1000000)::bigint
from {dead} d
where d.state = 'open'
group by d.fingerprint
order by count(*) desc, d.fingerprint
limit $1
