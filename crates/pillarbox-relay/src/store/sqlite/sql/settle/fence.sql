-- The number of these lanes that still have the epoch under which they are held. The lanes' primary key serves it.
select count(*)
from json_each(?1) as held
join {events_lanes} as l on l.lane = held.value ->> 0 and l.epoch = held.value ->> 1
