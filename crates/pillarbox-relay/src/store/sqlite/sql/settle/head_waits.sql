-- Of each key given, only the first failing or held event keeps a due_at. Served by the side table's index of heads.
update {events_parked} as p
set due_at = null
from json_each(?1) as k
where p.lane = k.value ->> 0 and p.key = k.value ->> 1 and p.state <> 'delayed' and p.due_at is not null
    and p.seq > (
        select min(q.seq)
        from {events_parked} as q
        where q.lane = p.lane and q.key = p.key and q.state <> 'delayed'
    )
