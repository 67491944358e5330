-- Open dead letters by fingerprint, with when people were told. Walks the index of open ones from end to end; takes no lock
-- that a writer minds.
-- ?1 to ?8: the filter
with grouped as materialized (
    select
        d.fingerprint, count(*) as n, count(distinct d.key) as keys, count(distinct d.topic) as topics,
        min(d.died_at) as first, max(d.died_at) as last, max(d.seq) as latest
    from {dead} as d
    where d.state = 'open' and {filter}
    group by d.fingerprint
    order by n desc, d.fingerprint
    limit 1000
)
select g.fingerprint, l.reason, l.sink, l.error, g.n, g.keys, g.topics, g.first, g.last,
    (select t.told_at from {events_notices} as t where t.fingerprint = g.fingerprint and t.state = 'open')
from grouped as g
join {dead} as l on l.seq = g.latest
order by g.n desc, g.fingerprint
