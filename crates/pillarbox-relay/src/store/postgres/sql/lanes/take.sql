-- Takes lanes that no relay holds or whose lease has expired. Reads 256 rows and skips those that another relay is
-- taking or renewing. Locks the lanes it takes.
-- $1 relay  $2 count  $3 ttl in microseconds
with vacant as materialized (
    select l.lane
    from {events_lanes} l
    join {events_leases} s on s.lane = l.lane
    where l.owner is null or s.lease_until < now()
    order by l.lane
    limit $2
    for update of l, s skip locked
),
taken as (
    update {events_lanes} l
    set owner = $1, epoch = l.epoch + 1
    from vacant
    where l.lane = vacant.lane
    returning l.lane, l.epoch
),
leased as (
    update {events_leases} s
    set lease_until = now() + $3 * interval '1 microsecond'
    from vacant
    where s.lane = vacant.lane
    returning s.lane, s.low_mark
)
select taken.lane, taken.epoch, leased.low_mark
from taken
join leased on leased.lane = taken.lane
order by taken.lane
