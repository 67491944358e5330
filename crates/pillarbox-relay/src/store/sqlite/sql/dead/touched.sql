-- What an action on open dead letters would touch. Walks the index of open ones from end to end; takes no lock that a
-- writer minds.
-- ?1 to ?8: the filter
with chosen as materialized (
    select d.topic, d.key from {dead} as d where d.state = 'open' and {filter}
)
select (select count(*) from chosen), (select count(distinct key) from chosen), t.topic, t.n
from (select 1)
left join (select topic, count(*) as n from chosen group by topic order by n desc, topic limit 100) as t
order by t.n desc, t.topic
