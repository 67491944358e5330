-- Inserts one event in the application's transaction. The unique index on id skips duplicates. Locks only
-- what it inserts. Inserts nothing if the event already exists, or if its topic's class is above its soft
-- limit: insert.sql then finds out which, and waits or refuses. Notifies a sleeping relay, once per
-- transaction however often this runs.
--
-- Most transactions run only this statement. So it has no CTE, no set and returns only a count: each part of
-- a plan is set up again at every execution. It took 60 to 90 µs more than the plain insert of six columns,
-- while insert.sql took 131.
insert into {events} (id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id,
                      aggregate_version, partition_key, payload, headers, project_id, user_id, available_at,
                      max_attempts, base_delay_ms, max_delay_ms, backoff_multiplier)
select $1::text, $2::text, $3::text, $4::text, $5::integer, $6::text, $7::text,
       $8::bigint, $9::text, $10::text, $11::text::jsonb, $12::text, $13::text,
       timestamptz 'epoch' + $14::bigint * interval '1 microsecond',
       $15::integer, $16::bigint, $17::bigint, $18::double precision
from {events_asleep} asleep
-- Always true, but notifies a sleeping relay. (pg_sequence_last_value returns null to a role without the
-- privilege.)
where (asleep.last_value <= date_part('epoch', now()) or (pg_notify($19::text, '') is null) is not null)
  -- No class that matches the topic is at a limit. Only the first one counts, as {events_pressure_of}
  -- decides, but to find it, or to call a function, takes 25 to 50 µs. Null: no check. A sequence that can't
  -- be read counts as at the limit.
  and not exists (
    select
    from {events_pressure} p
    where p.pending + greatest(coalesce(pg_sequence_last_value('{events_seq}'::regclass), 1::bigint << 62) - p.at_seq, 0)
          >= least(p.soft + 1, p.hard)
      and $20::text ~ p.topics
  )
on conflict (id) do nothing
