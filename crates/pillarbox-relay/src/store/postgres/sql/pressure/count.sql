-- Pending events by topic, from the lowest low mark on, and how far they were counted. The primary key serves it;
-- locks nothing.
-- $1 how many at most
with waiting as materialized (
    select e.seq, e.topic, e.created_at
    from {events} e
    where e.seq > (select min(low_mark) from {events_leases})
      and e.status = 'pending'
    order by e.seq
    limit $1
)
select topic, count(*), max(seq),
       (extract(epoch from min(created_at) filter (where isfinite(created_at))) * 1000000)::bigint
from waiting
group by topic
