-- What became of a fingerprint's letters that are not open. Walks the index of when they died, from a time on, with the side
-- table's primary key; takes no lock that a writer minds.
-- ?1 fingerprint  ?2 since
select
    count(*) filter (where d.state = 'replayed'), count(*) filter (where d.state = 'discarded'),
    count(p.seq) filter (where d.state = 'replayed')
from {dead} as d
left join {events_parked} as p on p.seq = d.seq
where d.died_at >= ?2 and d.fingerprint = ?1 and d.state <> 'open'
