-- Open dead letters by fingerprint, with when people were told. The index of open ones serves it, from end to end, and primary
-- keys the rest; locks nothing.
-- $1 to $8: the filter
with grouped as materialized (
    select d.fingerprint, count(*) as n, count(distinct d.key) as keys, count(distinct d.topic) as topics,
           min(d.died_at) as first, max(d.died_at) as last, max(d.seq) as latest
    from {dead} d
    where d.state = 'open' and {filter}
    group by d.fingerprint
    order by count(*) desc, d.fingerprint
    limit 1000
)
select g.fingerprint, l.reason, l.sink, l.error, g.n, g.keys, g.topics,
       (extract(epoch from g.first) * 1000000)::bigint,
       (extract(epoch from g.last) * 1000000)::bigint,
       (select (extract(epoch from t.told_at) * 1000000)::bigint
        from {events_notices} t
        where t.fingerprint = g.fingerprint and t.state = 'open')
from grouped g
join {dead} l on l.seq = g.latest
order by g.n desc, g.fingerprint
