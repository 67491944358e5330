-- A page of pending events by seq, all visible in one snapshot ($1, or this statement's own) and none in an earlier
-- one ($2). The primary key serves it: no other condition here can use an index. Locks nothing.
-- $1 snapshot  $2 since, or null  $3 after seq  $4 lane bits  $5 events  $6 payload_bytes_max  $7 bytes  $8 up to seq
with seen as materialized (
    select coalesce($1::text::pg_snapshot, pg_current_snapshot()) as snapshot,
           $2::text::pg_snapshot as since
),
sized as (
    select e.*,
           {sizes}
    from {events} e
    where e.seq > $3
      and e.seq <= $8
      and get_bit($4::bytea, e.lane) = 1
      and e.status = 'pending'
      and pg_visible_in_snapshot(e.txid, (select snapshot from seen))
      and ((select since from seen) is null or not pg_visible_in_snapshot(e.txid, (select since from seen)))
    order by e.seq
    limit $5
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
       null::bigint,
       null::bigint,
       null::boolean,
       {columns $6}
from seen s
left join page p on p.n = 1 or p.running <= $7
