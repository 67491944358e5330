-- The highest version of each aggregate that passed the check. The index on the aggregates' versions serves it,
-- from the highest downwards: it skips pending and dead events. Blocks no writer.
-- ?1: [[aggregate_type, aggregate_id], …]
with last as materialized (
    select a.key as n,
           (select e.seq from {events} as e
            where e.aggregate_type = a.value ->> 0 and e.aggregate_id = a.value ->> 1
              and e.aggregate_version is not null and e.status not in ('pending', 'dead')
            order by e.aggregate_version desc
            limit 1) as seq
    from json_each(?1) as a
)
select last.n, last.seq, e.aggregate_version from last left join {events} as e on e.seq = last.seq
