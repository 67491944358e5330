-- Pending events by topic, from the lowest low mark on. The primary key serves it; blocks no writer.
-- $1 how many at most
select topic, count(*), max(seq), min(created_at)
from (
    select seq, topic, created_at
    from {events}
    where seq > (select min(low_mark) from {events_lanes}) and status = 'pending'
    order by seq
    limit $1
)
group by topic
