-- Makes the first event of each given key that is not delayed due at once, unless it waits for its retry or is a
-- blocking dead event.
-- The side table's index of keys serves it.
update {events_parked}
set due_at = ?1
where due_at is null and state <> 'blocked'
    and seq in (
        select (
            select min(q.seq)
            from {events_parked} as q
            where q.lane = k.value ->> 0 and q.key = k.value ->> 1 and q.state <> 'delayed'
        )
        from json_each(?2) as k
    )
