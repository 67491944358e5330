-- Releases lanes and writes their low marks. Primary keys serve it; locks the lanes in their order.
-- $1 relay  $2 lanes  $3 epochs  $4 low marks  $5 xids read whole  $6 the start of the server they were found on or null
with mine as materialized (
    select l.lane, h.low_mark, h.seen_xid
    from {events_lanes} l
    join unnest($2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[]) h (lane, epoch, low_mark, seen_xid)
      on h.lane = l.lane and h.epoch = l.epoch
    where l.owner = $1
    order by l.lane
    for update of l
),
marked as (
    update {events_leases} s
    set low_mark = greatest(s.low_mark, mine.low_mark),
        seen_xid = greatest(s.seen_xid, mine.seen_xid)
    from mine
    where s.lane = mine.lane
      and coalesce($6::bigint, (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint) = (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint
)
update {events_lanes} l set owner = null from mine where l.lane = mine.lane
