-- Lanes handed back, with how far they are settled. Primary keys serve it; locks the lanes in their order.
-- $1 relay  $2 lanes  $3 epochs  $4 low marks
with mine as materialized (
    select l.lane, h.low_mark
    from {events_lanes} l
    join unnest($2::smallint[], $3::bigint[], $4::bigint[]) h (lane, epoch, low_mark)
      on h.lane = l.lane and h.epoch = l.epoch
    where l.owner = $1
    order by l.lane
    for update of l
),
marked as (
    update {events_leases} s
    set low_mark = greatest(s.low_mark, mine.low_mark)
    from mine
    where s.lane = mine.lane
)
update {events_lanes} l set owner = null from mine where l.lane = mine.lane
