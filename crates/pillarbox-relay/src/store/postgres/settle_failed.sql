-- Events that failed: into the side table, due after their delay. Primary keys find both; locks the rows.
-- $1 seqs  $2 lanes  $3 keys  $4 attempts  $5 errors  $6 delays in microseconds
with written as (
    update {events} e
    set status = 'failed',
        attempts = f.attempts,
        last_error = f.error,
        first_attempt_at = coalesce(e.first_attempt_at, now()),
        last_attempt_at = now()
    from unnest($1::bigint[], $2::smallint[], $3::text[], $4::integer[], $5::text[], $6::bigint[])
         f (seq, lane, key, attempts, error, delay)
    where e.seq = f.seq
      and e.status in ('pending', 'failed', 'held')
    returning f.seq, f.lane, f.key, f.delay
)
insert into {events_parked} (seq, lane, key, state, due_at)
select seq, lane, key, 'failed', clock_timestamp() + delay * interval '1 microsecond' from written
on conflict (seq) do update set state = 'failed', due_at = excluded.due_at
