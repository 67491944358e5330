-- Events that will never be delivered: dead in the main table, a letter in the dead one, gone from the side table.
-- Primary keys find all three; locks the rows.
-- $1 seqs  $2 attempts  $3 reasons  $4 errors
with written as (
    update {events} e
    set status = 'dead',
        attempts = d.attempts,
        last_error = d.error,
        first_attempt_at = case when d.attempts > 0 then coalesce(e.first_attempt_at, now()) end,
        last_attempt_at = case when d.attempts > e.attempts then now() else e.last_attempt_at end
    from unnest($1::bigint[], $2::integer[], $3::text[], $4::text[]) d (seq, attempts, reason, error)
    where e.seq = d.seq
      and e.status in ('pending', 'failed', 'held')
    returning e.seq, e.id, e.topic, coalesce(e.partition_key, e.aggregate_id) as key, e.event_type,
              d.reason, d.error, d.attempts
),
letters as (
    insert into {dead} (seq, id, topic, key, event_type, reason, error, attempts)
    select seq, id, topic, key, event_type, reason, error, attempts from written
    on conflict (seq) do nothing
)
delete from {events_parked} p where p.seq = any($1::bigint[])
