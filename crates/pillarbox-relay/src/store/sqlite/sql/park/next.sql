-- When the next event of some lanes will be due. Walks the side table's index of due times.
select due_at
from {events_parked}
where due_at > ?1 and lane in (select value from json_each(?2))
order by due_at
limit 1
