-- The event of a dead letter. The main table's primary key serves it; blocks no writer.
-- ?1 seq  ?2 payload_bytes_max
with sized as materialized (
    select
        e.seq,
        {sizes}
    from {events} as e
    where e.seq = ?1
)
select
    {columns ?2}
from sized as s
join {events} as e on e.seq = s.seq
