-- Removes the due_at of all failing and held events of each given key except the first. The side table's index of
-- heads serves it.
update {events_parked} as p
set due_at = null
from json_each(?1) as k
where p.lane = k.value ->> 0 and p.key = k.value ->> 1 and p.state <> 'delayed' and p.due_at is not null
    and p.seq > (
        select min(q.seq)
        from {events_parked} as q
        where q.lane = p.lane and q.key = p.key and q.state <> 'delayed'
    )
