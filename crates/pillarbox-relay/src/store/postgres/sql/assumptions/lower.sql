-- Lowers the low marks of these lanes to before an event that was found at or below one. Only if this reader's
-- epochs still match: otherwise another relay has done it. The lanes are free at once, because the caller gives
-- them up. Primary keys serve it; locks the lanes in their order.
-- $1 lanes  $2 epochs  $3 the event's seq
with mine as materialized (
    select l.lane
    from {events_lanes} l
    join unnest($1::smallint[], $2::bigint[]) h (lane, epoch) on h.lane = l.lane and h.epoch = l.epoch
    order by l.lane
    for update of l
),
lowered as (
    update {events_leases} s
    set low_mark = least(s.low_mark, $3::bigint - 1)
    from mine
    where s.lane = mine.lane
)
update {events_lanes} l set epoch = l.epoch + 1, owner = null from mine where l.lane = mine.lane
