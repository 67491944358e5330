-- The time at which the next event of some lanes is due. The side table's index of due times serves it.
select due_at
from {events_parked}
where due_at > ?1 and lane in (select value from json_each(?2))
order by due_at
limit 1
