-- Events committed since a snapshot: rows of transactions at or above its xmax ($1), and of those that were in
-- progress then ($2). One statement, so that the rows match the returned snapshot. The index on txid serves both
-- parts, and each stops at $5 rows. If that limit is reached, only this fact is returned, and the reader continues
-- by seq. Locks nothing.
-- $1 xmax  $2 xids  $3 lane bits  $4 events  $5 scan_max  $6 payload_bytes_max  $7 bytes
with seen as materialized (
    select pg_current_snapshot() as snapshot
),
fresh as materialized (
    (select e.*, false as late
     from {events} e
     where e.txid >= $1::text::xid8 and get_bit($3::bytea, e.lane) = 1 and e.status = 'pending'
     order by e.txid
     limit $5)
    union all
    (select e.*, true
     from {events} e
     where e.txid = any($2::text[]::xid8[]) and get_bit($3::bytea, e.lane) = 1 and e.status = 'pending'
     limit $5)
),
head as materialized (
    select count(*) as total,
           greatest(count(*) filter (where late), count(*) filter (where not late)) >= $5 as truncated
    from fresh
),
sized as (
    select e.*,
           {sizes}
    from fresh e
    order by e.seq
    limit $4
),
page as (
    select z.*,
           row_number() over w as n,
           sum({fetched z $6}) over w as running
    from sized z
    window w as (order by z.seq rows unbounded preceding)
)
select case when p.n is null or p.n = 1 then s.snapshot::text end,
       pg_postmaster_start_time(),
       (select case when is_called then last_value else 0 end from {events_seq}),
       h.total,
       h.truncated,
       {columns $6}
from seen s
cross join head h
left join page p on not h.truncated and (p.n = 1 or p.running <= $7)
