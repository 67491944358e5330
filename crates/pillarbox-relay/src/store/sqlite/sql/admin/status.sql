-- The state of the outbox. The primary key serves it from the lowest low mark on, then the side table and the index
-- of open dead letters: it reads unsettled events, never those that were delivered long ago.
with pending as (
    select
        count(*) filter (where coalesce(available_at, 0) <= {now}) as ready,
        count(*) filter (where available_at > {now}) as later,
        min(iif(coalesce(available_at, 0) <= {now}, created_at, null)) as oldest
    from {events}
    where seq > (select min(low_mark) from {events_lanes}) and status = 'pending'
),
parked as (
    select
        count(*) filter (where p.state = 'failed') as failed,
        count(*) filter (where p.state = 'held') as held,
        count(*) filter (where p.state = 'delayed') as later,
        min(iif(p.state <> 'delayed', e.created_at, null)) as oldest
    from {events_parked} as p
    join {events} as e on e.seq = p.seq
)
select
    pending.ready, parked.failed, parked.held, pending.later + parked.later,
    (select count(*) from {dead} where state = 'open'),
    {now_micros} - min(coalesce(pending.oldest, parked.oldest), coalesce(parked.oldest, pending.oldest)),
    (select count(*) from {events_lanes} where owner is not null and lease_until > {now})
from pending, parked
