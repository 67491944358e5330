-- The highest version of each aggregate that passed the check. The index on the aggregates' versions serves it,
-- from the highest downwards: it skips pending and dead events. Locks nothing.
-- $1 aggregate types  $2 aggregate ids, side by side
select a.n, last.aggregate_version, last.seq
from unnest($1::text[], $2::text[]) with ordinality a (aggregate_type, aggregate_id, n)
cross join lateral (
    select e.aggregate_version, e.seq
    from {events} e
    where e.aggregate_type = a.aggregate_type and e.aggregate_id = a.aggregate_id
      and e.aggregate_version is not null
      and e.status not in ('pending', 'dead')
    order by e.aggregate_version desc
    limit 1
) last
