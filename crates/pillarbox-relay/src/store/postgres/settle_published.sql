-- Delivered events, straight from discovery. The primary key finds them; no index is written, as no indexed column
-- changes. Locks the rows. Nothing is written when an event's lane has changed hands: the second scan runs only when
-- some held lane's epoch has moved on, which is almost never.
-- $1 seqs  $2 lanes  $3 their epochs
with moved as materialized (
    select h.lane
    from unnest($2::smallint[], $3::bigint[]) h (lane, epoch)
    left join {events_lanes} l on l.lane = h.lane
    where l.epoch is distinct from h.epoch
),
stale as materialized (
    select 1
    from {events} e
    where exists (select from moved)
      and e.seq = any($1::bigint[])
      and e.lane in (select lane from moved)
    limit 1
),
written as (
    update {events} e
    set status = 'published',
        attempts = e.attempts + 1,
        first_attempt_at = coalesce(e.first_attempt_at, now()),
        last_attempt_at = now(),
        published_at = now()
    where not exists (select from stale)
      and e.seq = any($1::bigint[])
      and e.status in ('pending', 'failed', 'held')
)
select exists (select from stale)
