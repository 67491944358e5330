-- The keys of some lanes that have failing, held or blocking dead events. The side table's index of keys serves it.
select distinct lane, key
from {events_parked}
where state <> 'delayed' and lane in (select value from json_each(?1))
