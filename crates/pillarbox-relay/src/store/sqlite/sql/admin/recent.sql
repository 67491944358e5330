-- The latest events with their status. The primary key serves it, from its end; blocks no writer. A row that is
-- larger than the limit is skipped, and its payload is not loaded.
with sized as materialized (
    select
        e.seq,
        {sizes}
    from {events} as e
    order by e.seq desc
    limit ?1
)
select
    {columns ?2}, e.status
from sized as s
join {events} as e on e.seq = s.seq
order by s.seq desc
