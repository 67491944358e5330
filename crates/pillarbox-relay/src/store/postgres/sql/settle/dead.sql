-- Marks events as dead: in the main table, with an open letter that has the latest failures, and removed from the
-- side table. Primary keys find all three; locks the rows.
-- $1 seqs  $2 attempts  $3 reasons  $4 failures  $5 whether the last of them was a try  $6 fingerprints
with gone as (
    delete from {events_parked} p
    where p.seq = any($1::bigint[])
    returning p.seq, p.lane, p.key, p.failures
),
written as (
    update {events} e
    set status = 'dead',
        attempts = d.attempts,
        last_error = d.failure ->> 'error',
        first_attempt_at = case when d.attempts > 0 then coalesce(e.first_attempt_at, now()) end,
        last_attempt_at = case when d.attempts > e.attempts then now() else e.last_attempt_at end
    from unnest($1::bigint[], $2::integer[], $3::text[], $4::text[]::jsonb[], $5::boolean[], $6::text[])
         d (seq, attempts, reason, failure, tried, fingerprint)
    where e.seq = d.seq
      and e.status in ('pending', 'failed', 'held', 'delayed')
    -- Cut to the length that a readable event can have.
    returning e.seq, left(e.id, 255) as id, left(e.topic, 255) as topic, left(coalesce(e.partition_key, e.aggregate_id), 255) as key,
              left(e.event_type, 255) as event_type, d.attempts, d.reason, d.failure, d.tried, d.fingerprint
),
letters as (
    insert into {dead} (seq, id, topic, key, event_type, reason, error, attempts, sink, relay, fingerprint, failures)
    select w.seq, w.id, w.topic, w.key, w.event_type, w.reason, w.failure ->> 'error', w.attempts, w.failure ->> 'sink',
           w.failure ->> 'relay', w.fingerprint,
           case when jsonb_array_length(g.failures) < 20 then g.failures else coalesce(g.failures - 0, '[]') end
               || case when w.tried then jsonb_build_array(w.failure || jsonb_build_object('at', now())) else '[]' end
    from written w
    left join gone g on g.seq = w.seq
    -- A replayed event that died again; or a new event with the seq of an old one that no longer exists.
    on conflict (seq) do update
    set state = 'open', id = excluded.id, topic = excluded.topic, key = excluded.key, event_type = excluded.event_type,
        reason = excluded.reason, error = excluded.error, attempts = excluded.attempts, sink = excluded.sink, relay = excluded.relay, fingerprint = excluded.fingerprint,
        failures = excluded.failures, died_at = excluded.died_at
)
select lane, key from gone
