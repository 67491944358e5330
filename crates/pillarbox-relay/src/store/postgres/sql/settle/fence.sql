-- The lanes that are still held. No relay can take them before this transaction ends. The primary key serves it;
-- locks them for share, in the order of lanes, as all statements do.
-- $1 lanes  $2 epochs
select l.lane
from {events_lanes} l
join unnest($1::smallint[], $2::bigint[]) h (lane, epoch) on h.lane = l.lane and h.epoch = l.epoch
order by l.lane
for share of l
