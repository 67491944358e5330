-- The results of a fingerprint's letters that are not open. The index on died_at serves it, from a time on, the
-- side table's primary key the rest; locks nothing.
-- $1 fingerprint  $2 since, in microseconds
select count(*) filter (where d.state = 'replayed'), count(*) filter (where d.state = 'discarded'),
       count(p.seq) filter (where d.state = 'replayed')
from {dead} as d
left join {events_parked} as p on p.seq = d.seq
where d.died_at >= {time $2} and d.fingerprint = $1 and d.state <> 'open'
