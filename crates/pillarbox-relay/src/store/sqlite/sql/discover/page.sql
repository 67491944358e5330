-- The next pending events of some lanes. The primary key serves it, from the last seq read; blocks no writer. Sizes
-- come from the row's header, so values that are too large are never loaded.
with candidate as materialized (
    select
        e.seq,
        {sizes}
    from {events} as e
    where e.seq > ?1 and e.status = 'pending' and e.lane in (select value from json_each(?2))
    order by e.seq
    limit ?3
),
fetched as (
    select
        seq, bytes, header_bytes, name_bytes,
        iif(bytes <= ?5, bytes, 0) + iif(header_bytes <= {headers_max}, header_bytes, 0)
            + iif(name_bytes <= {names_max}, name_bytes, 0) as fetched
    from candidate
),
sized as (
    select
        seq, bytes, header_bytes, name_bytes, fetched,
        sum(fetched) over (order by seq rows unbounded preceding) as running,
        count(*) over () as candidates
    from fetched
)
select
    {columns ?5}, s.candidates
from sized as s
join {events} as e on e.seq = s.seq
-- The first event is returned whatever its size.
where s.running <= ?4 or s.running = s.fetched
order by s.seq
