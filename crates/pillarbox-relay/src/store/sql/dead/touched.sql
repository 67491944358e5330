-- The letters that an action on open dead letters would affect. The index of open ones serves it, from end to end;
-- locks nothing.
-- $1 to $8: the filter
with chosen as materialized (
    select d.topic, d.key from {dead} as d where d.state = 'open' and {filter}
)
select (select count(*) from chosen), (select count(distinct key) from chosen), t.topic, t.n
from (select 1) as one
left join (select topic, count(*) as n from chosen group by topic order by count(*) desc, topic limit 100) as t on true
order by t.n desc, t.topic
