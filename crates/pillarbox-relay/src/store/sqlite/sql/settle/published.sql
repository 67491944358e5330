-- Marks events as delivered, unless the lanes' epochs have changed. The primary keys of both tables serve it;
-- writes no index. Holds the write lock while it runs.
update {events}
set status = 'published', published_at = ?1, first_attempt_at = coalesce(first_attempt_at, ?1), last_attempt_at = ?1
where seq in (select value from json_each(?2))
    and status not in ('published', 'dead')
    and ?4 = (
        select count(*)
        from json_each(?3) as held
        join {events_lanes} as l on l.lane = held.value ->> 0 and l.epoch = held.value ->> 1
    )
