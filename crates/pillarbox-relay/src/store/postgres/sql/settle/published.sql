-- Marks events that come straight from discovery as delivered. The primary key finds them; no index is written,
-- because no indexed column changes. Locks the rows. Nothing is written if another relay has taken the lane of an
-- event: the second scan runs only if the epoch of a held lane has changed, which is rare. The lanes' primary key
-- is read once from end to end: looking up each lane took a quarter of a millisecond, a twentieth of a settlement
-- of 500. The events are given in one of two ways: see settle.rs.
-- $1 the epoch of every lane, in their order; -1 for one that is not held
with moved as materialized (
    select l.lane
    from {events_lanes} l
    where l.lane >= 0 and l.epoch <> ($1::bigint[])[l.lane + 1] and ($1::bigint[])[l.lane + 1] >= 0
),
stale as materialized (
    select 1
    from {events} e
    where exists (select from moved)
      and {chosen}
      and e.lane in (select lane from moved)
    limit 1
),
written as (
    update {events} e
    set status = 'published',
        first_attempt_at = coalesce(e.first_attempt_at, now()),
        last_attempt_at = now(),
        published_at = now()
    where not exists (select from stale)
      and {chosen}
      and e.status in ('pending', 'failed', 'held', 'delayed')
{logged}
)
select exists (select from stale)
