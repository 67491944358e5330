-- Matching entries, the latest first, as many as have a number of bytes together, and how many there are up to the limit of
-- rows. An index on an id and the position serves a filter by aggregate, project, user or correlation id; otherwise the
-- primary key does, within the given positions. The sizes come from the rows' headers, so larger payloads are not loaded
-- in vain. Locks nothing.
with next as (
    select l.position, {entry_bytes} as bytes
    from {events_log} as l
    where l.status <> 'void' and {conditions}
    order by l.position desc
    limit {count}
),
sized as (
    select n.position, n.bytes, sum(n.bytes) over (order by n.position desc rows unbounded preceding) as running
    from next as n
)
select {entry}, (select count(*) from next)
from sized as s
join {events_log} as l on l.position = s.position
-- The first row is returned whatever its size.
where s.running <= {bytes} or s.running = s.bytes
order by l.position desc
