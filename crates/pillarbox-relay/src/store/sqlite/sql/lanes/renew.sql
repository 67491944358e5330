-- Renews lanes that are still held and writes their low marks. The lanes' primary key serves it.
update {events_lanes} as l
set lease_until = ?2, low_mark = max(l.low_mark, held.value ->> 2)
from json_each(?3) as held
where l.lane = held.value ->> 0 and l.epoch = held.value ->> 1 and l.owner = ?1
returning lane
