-- The causes of open dead letters. The index of open ones serves it, from end to end; locks nothing.
-- $1 count
select d.fingerprint, count(*), {micros max(d.died_at)}
from {dead} as d
where d.state = 'open'
group by d.fingerprint
order by count(*) desc, d.fingerprint
limit $1
