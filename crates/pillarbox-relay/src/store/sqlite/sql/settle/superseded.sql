-- The events that wait behind these dead ones and have their topic, except the newest. The side table's index of
-- keys and the main table's primary key serve it.
-- ?1 seqs of the dead
with waiting as (
    select
        w.seq, w.attempts, first_value(w.id) over newest_first as newest, row_number() over newest_first as n
    from {events} as e
    join {events_parked} as p
        on p.lane = e.lane and p.key = coalesce(e.partition_key, e.aggregate_id) and p.seq > e.seq
        and p.state <> 'delayed' and p.state <> 'blocked'
    join {events} as w on w.seq = p.seq and w.topic = e.topic
    where e.seq in (select value from json_each(?1)) and e.status = 'dead'
    window newest_first as (partition by e.seq order by w.seq desc)
)
select seq, attempts, newest from waiting where n > 1 group by seq
