-- One event into the application's transaction. The unique index on id refuses the second of two; locks only what it
-- inserts. Inserts nothing where the event was there before, and where much of its topic's class waits: insert.sql then
-- tells which, and waits or refuses. A relay that sleeps is told, once per transaction however often this runs.
--
-- This is what most transactions pay, so it has no CTE, no set and no answer but a count: each part of a plan is set up
-- again with every execution. It took 60 to 90 µs more than the plain insert of six columns, where insert.sql took 131.
insert into {events} (id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id,
                      aggregate_version, partition_key, payload, headers, project_id, user_id, available_at,
                      max_attempts, base_delay_ms, max_delay_ms, backoff_multiplier)
select $1::uuid, $2::text, $3::text, $4::text, $5::integer, $6::text, $7::text,
       $8::bigint, $9::text, $10::text, $11::text::jsonb, $12::text, $13::text,
       timestamptz 'epoch' + $14::bigint * interval '1 microsecond',
       $15::integer, $16::bigint, $17::bigint, $18::double precision
from {events_asleep} asleep
-- Always true, but a relay that sleeps is told. (pg_sequence_last_value would tell a role without the right nothing.)
where (asleep.last_value <= date_part('epoch', now()) or (pg_notify($19::text, '') is null) is not null)
  -- No class that would take it is at a limit. The first of them counts, as {events_pressure_of} says; but to ask for that one,
  -- or a function, takes 25 to 50 µs. Null: nobody asks. A sequence that can't be read is at the limit.
  and not exists (
    select
    from {events_pressure} p
    where p.pending + greatest(coalesce(pg_sequence_last_value('{events_seq}'::regclass), 1::bigint << 62) - p.at_seq, 0)
          >= least(p.soft + 1, p.hard)
      and $20::text ~ p.topics
  )
on conflict (id) do nothing
