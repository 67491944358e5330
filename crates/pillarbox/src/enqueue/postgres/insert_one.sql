-- One event into the application's transaction. The unique index on id refuses the second of two; locks only what it
-- inserts. Inserts nothing where the event was there before, and where much of its topic's class waits: insert.sql then
-- tells which, and waits or refuses. A relay that sleeps is told, once per transaction however often this runs.
--
-- This is what most transactions pay, so it has no CTE, no set and no answer but a count: each part of a plan is set up
-- again with every execution. It took 65 to 89 µs more than the plain insert of six columns, where insert.sql took 131.
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
  -- Its class is at no limit: as {events_pressure_of} says it, which as a function takes 30 µs more. Null: nobody asks.
  and not exists (
    select
    from (select p.* from {events_pressure} p where $20::text ~ p.topics order by p.place limit 1) c
    cross join {events_seq} s
    where c.pending + greatest(s.last_value - c.at_seq, 0) >= least(c.soft + 1, c.hard)
  )
on conflict (id) do nothing
