-- Marks events of the side table as delivered and removes them from it. Returns their failures, for the event log. Primary
-- keys find both; locks the rows.
-- $1 seqs
with written as (
    update {events} e
    set status = 'published',
        first_attempt_at = coalesce(e.first_attempt_at, now()),
        last_attempt_at = now(),
        published_at = now()
    where e.seq = any($1::bigint[])
      and e.status in ('pending', 'failed', 'held', 'delayed')
)
delete from {events_parked} p where p.seq = any($1::bigint[])
returning p.seq, p.failures::text
