-- How many of the lanes still have the epoch they are held under. Served by the lanes' primary key.
select count(*)
from json_each(?1) as held
join {events_lanes} as l on l.lane = held.value ->> 0 and l.epoch = held.value ->> 1
