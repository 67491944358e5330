-- Open dead letters by fingerprint. The index of open ones serves it, from end to end, and the primary key the latest
-- letter of each; locks nothing.
-- $1 to $8: the filter
with grouped as materialized (
    select d.fingerprint, count(*) as n, count(distinct d.key) as keys, count(distinct d.topic) as topics,
           min(d.died_at) as first_died_at, max(d.died_at) as last_died_at, max(d.seq) as latest
    from {dead} as d
    where d.state = 'open' and {filter}
    group by d.fingerprint
    order by count(*) desc, d.fingerprint
    limit 1000
)
select g.fingerprint, l.reason, l.sink, l.error, g.n, g.keys, g.topics, {micros g.first_died_at}, {micros g.last_died_at}
from grouped as g
join {dead} as l on l.seq = g.latest
order by g.n desc, g.fingerprint
