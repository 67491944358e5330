-- The keys that have failing, held or blocking dead events. The index on (lane, key, seq) serves it; locks nothing.
-- $1 lanes
select distinct p.lane, p.key
from {events_parked} p
where p.lane = any($1::smallint[]) and p.state <> 'delayed'
