-- The state of the outbox. The primary key serves the count of pending events, from the lowest low mark on, so the
-- cost grows with the unsettled events. (If the low marks are invalid, it counts from the first event.) The side
-- table and the dead letters are small. Locks nothing. An infinite time has no age: another program wrote it.
with pending as (
    select count(*) as n, min(e.created_at) filter (where isfinite(e.created_at)) as oldest
    from {events} e
    where e.seq > {lowest_mark}
      and e.status = 'pending'
),
parked as (
    select count(*) filter (where p.state = 'failed') as failed,
           count(*) filter (where p.state = 'held') as held,
           count(*) filter (where p.state = 'delayed') as delayed,
           min(e.created_at) filter (where p.state <> 'delayed' and isfinite(e.created_at)) as oldest
    from {events_parked} p
    join {events} e on e.seq = p.seq
)
select pending.n, parked.failed, parked.held, parked.delayed,
       (select count(*) from {dead} where state = 'open'),
       (extract(epoch from clock_timestamp() - least(pending.oldest, parked.oldest)) * 1000000)::bigint,
       (select count(*) from {events_lanes} l join {events_leases} s on s.lane = l.lane
        where l.owner is not null and s.lease_until > now())
from pending, parked
