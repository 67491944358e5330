-- Releases lanes and writes their low marks. The lanes' primary key serves it.
update {events_lanes} as l
set owner = null, lease_until = 0, low_mark = max(l.low_mark, held.value ->> 2)
from json_each(?2) as held
where l.lane = held.value ->> 0 and l.epoch = held.value ->> 1 and l.owner = ?1
