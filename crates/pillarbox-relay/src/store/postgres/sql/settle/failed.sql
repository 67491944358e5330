-- Puts failed events into the side table, due after their delay, with the latest of their failures. Primary keys
-- find both; locks the rows.
-- $1 seqs  $2 lanes  $3 keys  $4 attempts  $5 failures  $6 delays in microseconds
with written as (
    update {events} e
    set status = 'failed',
        attempts = f.attempts,
        last_error = f.failure ->> 'error',
        first_attempt_at = coalesce(e.first_attempt_at, now()),
        last_attempt_at = now()
    from unnest($1::bigint[], $2::smallint[], $3::text[], $4::integer[], $5::text[]::jsonb[], $6::bigint[])
         f (seq, lane, key, attempts, failure, delay)
    where e.seq = f.seq
      and e.status in ('pending', 'failed', 'held', 'delayed')
    returning f.seq, f.lane, f.key, f.delay, f.failure || jsonb_build_object('at', now()) as failure
)
insert into {events_parked} as p (seq, lane, key, state, due_at, failures)
select seq, lane, key, 'failed', clock_timestamp() + delay * interval '1 microsecond', jsonb_build_array(failure)
from written
on conflict (seq) do update
set state = 'failed',
    due_at = excluded.due_at,
    failures = case when jsonb_array_length(p.failures) < 20 then p.failures else p.failures - 0 end || excluded.failures
