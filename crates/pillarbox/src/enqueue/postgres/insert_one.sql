-- One event into the application's transaction. The unique index on id refuses the second of two; locks only what it
-- inserts. Answers nothing where the event was there before, and where much of its topic's class waits: insert.sql, which
-- costs a transaction twice as much over a bare insert, then tells which, and waits or refuses. A relay that sleeps is
-- told, once per transaction however often this runs.
insert into {events} (id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id,
                      aggregate_version, partition_key, payload, headers, project_id, user_id, available_at,
                      max_attempts, base_delay_ms, max_delay_ms, backoff_multiplier)
select $1::uuid, $2::text, $3::text, $4::text, $5::integer, $6::text, $7::text,
       $8::bigint, $9::text, $10::text, $11::text::jsonb, $12::text, $13::text,
       timestamptz 'epoch' + $14::bigint * interval '1 microsecond',
       $15::integer, $16::bigint, $17::bigint, $18::double precision
from {events_asleep} asleep
-- Always true, but a relay that sleeps is told.
where (asleep.last_value <= extract(epoch from now()) or (pg_notify($19::text, '') is null) is not null)
  and not exists (
    select
    -- Where nothing is limited the function is not even called.
    from (select true as limited from {events_pressure} limit 1) there
    cross join lateral {events_pressure_of}(case when there.limited then $20::text[] end) p
    where p.refused or p.delay_ms > 0
  )
on conflict (id) do nothing
returning id, null::text as class, null::bigint as pending, null::bigint as soft, null::bigint as hard,
          null::bigint as oldest_ms, null::bigint as delay_ms, null::bigint as retry_after_ms, null::boolean as refused
