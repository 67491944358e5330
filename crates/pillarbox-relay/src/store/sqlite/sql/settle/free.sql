-- The given keys that have no failing, held or blocking dead event left. The side table's index of keys serves it.
select k.value ->> 0, k.value ->> 1
from json_each(?1) as k
where not exists (
    select 1
    from {events_parked} as q
    where q.lane = k.value ->> 0 and q.key = k.value ->> 1 and q.state <> 'delayed'
)
