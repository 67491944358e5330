-- The rows after a position, in order. The primary key serves it, and the sizes come from the rows' headers, so larger
-- payloads are not loaded in vain. Locks nothing.
-- $1 after  $2 rows  $3 bytes
with next as (
    select l.position, {entry_bytes} as bytes
    from {events_log} as l
    where l.position > $1
    order by l.position
    limit $2
),
sized as (
    select n.position, n.bytes, sum(n.bytes) over (order by n.position rows unbounded preceding) as running
    from next as n
)
select {entry}
from sized as s
join {events_log} as l on l.position = s.position
-- The first row is returned whatever its size.
where s.running <= $3 or s.running = s.bytes
order by l.position
