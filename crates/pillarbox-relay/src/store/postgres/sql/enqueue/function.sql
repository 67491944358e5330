-- Before version 8 an id was a UUID, and these would be other functions.
drop function if exists
    {enqueue}(text, text, text, text, text, text, bigint, jsonb, uuid, text, integer, text, text, timestamptz, integer,
              bigint, bigint, double precision, text, text, boolean),
    {enqueue}(text, text, text, json, text, text, bigint, jsonb, uuid, text, integer, text, text, timestamptz, integer,
              bigint, bigint, double precision, text, text, boolean),
    {enqueue}(text, text, text, jsonb, text, text, bigint, jsonb, uuid, text, integer, text, text, timestamptz, integer,
              bigint, bigint, double precision, text, text, boolean);

-- Writes one event in the caller's transaction, for applications in any language, and returns its id. Checks what
-- the library checks and raises the same texts, with the SQLSTATE PB400, or PB429 if too many events are pending.
-- The unique index on id finds an event with the same id; then nothing is written. Locks only what it inserts, and
-- with lock_key also the key until the transaction ends.
--
-- The caller's search_path finds the tables, and the caller's rights apply.
create or replace function {enqueue}(
    topic text, key text, event_type text, payload text,
    aggregate_type text default null, aggregate_id text default null, aggregate_version bigint default null,
    headers jsonb default '{}', id text default null, stream text default null, schema_version integer default 1,
    project_id text default null, user_id text default null, available_at timestamptz default null,
    max_attempts integer default null, base_delay_ms bigint default null, max_delay_ms bigint default null,
    backoff_multiplier double precision default null, correlation_id text default null, traceparent text default null,
    lock_key boolean default false
) returns text language plpgsql as $function$
#variable_conflict use_variable
declare
    -- Version 7, which starts with the time: new index entries are next to each other.
    new_id         constant text := coalesce(id, encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) placing
        substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1), 52, 1), 53, 1), 'hex')::uuid::text);
    usual          boolean;
    written        text;
    refusal        text;
    partition_key  text;
begin
    -- The fast path for most events: only names, which together are no longer than one name may be, and a payload.
    -- Each expression must be set up again in each transaction, so there are only two: one to check, one to write.
    -- Every other event takes the slow path below, which finds the error text and costs half as much again.
    begin
        -- A subtransaction that writes nothing, so it uses no transaction id.
        usual := payload::json is not null
            and '' <> all (array[new_id, topic, key, event_type, coalesce(aggregate_type, topic), coalesce(aggregate_id, key)])
            and concat(new_id, topic, key, event_type, aggregate_type, aggregate_id) !~ '[\u0001-\u001f\u007f-\u009f]'
            and octet_length(concat(topic, key, event_type, aggregate_type, aggregate_id)) <= 255 and octet_length(new_id) <= 255
            and topic !~ '[ \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]'
            and octet_length(payload) <= coalesce(nullif(current_setting('pillarbox.payload_bytes_max', true), ''), '1048576')::bigint
            and octet_length(payload) - octet_length(translate(payload, '[{', '')) <= 512
            and schema_version >= 1 and coalesce(aggregate_version, 0) >= 0
            and headers = '{}' and not lock_key and new_id <> '00000000-0000-0000-0000-000000000000'
            and num_nonnulls(stream, project_id, user_id, available_at, max_attempts, base_delay_ms, max_delay_ms,
                             backoff_multiplier, correlation_id, traceparent) = 0;
    exception when data_exception or statement_too_complex then
        usual := false;
    end;
    if usual then
        insert into {events} (id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                              partition_key, payload)
        select new_id, topic, event_type, schema_version, coalesce(aggregate_type, topic), coalesce(aggregate_id, key),
               aggregate_version, case when aggregate_id is not null then key end, payload
        -- The first condition is always true. It notifies a relay that sleeps.
        from {events_asleep} asleep
        where (asleep.last_value <= date_part('epoch', now()) or (pg_notify('{channel}', '') is null) is not null)
          -- No class of this topic is at a limit. If the sequence can't be read, the limit counts as reached.
          and not exists (
            select
            from {events_pressure} p
            where p.pending + greatest(coalesce(pg_sequence_last_value('{events_seq}'::regclass), 1::bigint << 62) - p.at_seq, 0)
                  >= least(p.soft + 1, p.hard)
              and topic ~ p.topics
          )
        on conflict on constraint {index_id} do nothing
        returning new_id into written;
        if written is not null then
            return written;
        end if;
    end if;

    if aggregate_id is null then
        aggregate_id := key;
    else
        partition_key := key;
    end if;
    aggregate_type := coalesce(aggregate_type, topic);
    schema_version := coalesce(schema_version, 1);
    headers := coalesce(headers, '{}');
    if traceparent is not null then
        headers := headers || jsonb_build_object('traceparent', traceparent);
    end if;
    if correlation_id is not null then
        headers := headers || jsonb_build_object('correlation-id', correlation_id);
    end if;
    refusal := {refusal}(new_id, topic, event_type, aggregate_type, aggregate_id, partition_key, stream, project_id, user_id,
                         aggregate_version, schema_version, available_at, max_attempts, base_delay_ms, max_delay_ms,
                         backoff_multiplier, headers, payload);
    if new_id = '00000000-0000-0000-0000-000000000000' then
        refusal := 'the id is all zeros: give each event its own id, or none';
    end if;
    if refusal is not null then
        raise exception using errcode = 'PB400', message = refusal,
            hint = 'Nothing was written. Roll back, at least to a savepoint set before the call, and correct the event.';
    end if;
    -- Waits above the soft limit, and raises PB429 at the hard one. Before the lock, which must not be held that
    -- long. Without limits the table is empty, and the function is not called.
    if exists (select from {events_pressure}) then
        perform {events_mind_pressure}(topic);
    end if;
    if lock_key then
        -- In a statement before the insert, so that the seq is taken after the lock.
        perform pg_advisory_xact_lock(hashtextextended('pillarbox key {events} ' || coalesce(partition_key, aggregate_id), 0));
    end if;
    insert into {events} (id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                          partition_key, payload, headers, project_id, user_id, available_at, max_attempts, base_delay_ms,
                          max_delay_ms, backoff_multiplier)
    values (new_id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
            partition_key, payload, headers, project_id, user_id,
            -- The library's times start there. An event that was due long ago is due.
            case when available_at is not null then greatest(available_at, timestamptz '0001-01-01 00:00:00+00') end,
            max_attempts, base_delay_ms, max_delay_ms, backoff_multiplier)
    on conflict on constraint {index_id} do nothing;
    -- Notifies a relay that sleeps, once per transaction however often this runs.
    perform pg_notify('{channel}', '') from {events_asleep} where last_value > extract(epoch from now());
    return new_id;
end $function$;

-- The same for payloads that are json or jsonb. An untyped parameter counts as text.
create or replace function {enqueue}(
    topic text, key text, event_type text, payload json,
    aggregate_type text default null, aggregate_id text default null, aggregate_version bigint default null,
    headers jsonb default '{}', id text default null, stream text default null, schema_version integer default 1,
    project_id text default null, user_id text default null, available_at timestamptz default null,
    max_attempts integer default null, base_delay_ms bigint default null, max_delay_ms bigint default null,
    backoff_multiplier double precision default null, correlation_id text default null, traceparent text default null,
    lock_key boolean default false
) returns text language sql as $function$
    select {enqueue}(topic, key, event_type, payload::text, aggregate_type, aggregate_id, aggregate_version, headers, id,
                     stream, schema_version, project_id, user_id, available_at, max_attempts, base_delay_ms, max_delay_ms,
                     backoff_multiplier, correlation_id, traceparent, lock_key)
$function$;
create or replace function {enqueue}(
    topic text, key text, event_type text, payload jsonb,
    aggregate_type text default null, aggregate_id text default null, aggregate_version bigint default null,
    headers jsonb default '{}', id text default null, stream text default null, schema_version integer default 1,
    project_id text default null, user_id text default null, available_at timestamptz default null,
    max_attempts integer default null, base_delay_ms bigint default null, max_delay_ms bigint default null,
    backoff_multiplier double precision default null, correlation_id text default null, traceparent text default null,
    lock_key boolean default false
) returns text language sql as $function$
    select {enqueue}(topic, key, event_type, payload::text, aggregate_type, aggregate_id, aggregate_version, headers, id,
                     stream, schema_version, project_id, user_id, available_at, max_attempts, base_delay_ms, max_delay_ms,
                     backoff_multiplier, correlation_id, traceparent, lock_key)
$function$;
