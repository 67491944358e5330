-- Why an event can't be written, in the same words as the library's check (crates/pillarbox/src/check.rs; a
-- property test compares the two), or null. Reads no table and locks nothing.
create or replace function {refusal}(
    id text, topic text, event_type text, aggregate_type text, aggregate_id text, partition_key text, stream text, project_id text,
    user_id text, aggregate_version bigint, schema_version integer, available_at timestamptz, max_attempts integer,
    base_delay_ms bigint, max_delay_ms bigint, backoff_multiplier double precision, headers jsonb, payload text
) returns text language plpgsql as $function$
declare
    name_bytes_max     constant integer := 255;
    headers_max        constant integer := 64;
    headers_bytes_max  constant integer := 16384;
    delay_max_seconds  constant integer := 31536000;
    depth_max          constant integer := 512;
    bytes_max_set      constant text := coalesce(nullif(current_setting('pillarbox.payload_bytes_max', true), ''), '1048576');
    payload_bytes_max  constant bigint := case when bytes_max_set ~ '^[0-9]{1,18}$' then bytes_max_set end;
    control            constant text := '[\u0001-\u001f\u007f-\u009f]';
    whitespace         constant text := '[\u0009-\u000d \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]';
    names   text[];
    texts   text[];
    field   text;
    found   text;
    number  bigint := 0;
    header  record;
begin
    -- One expression for the usual case. Only if a name is wrong, find out which one and why.
    if least(octet_length(coalesce(id, '')), octet_length(coalesce(topic, '')), octet_length(coalesce(event_type, '')), octet_length(coalesce(aggregate_type, '')),
             octet_length(coalesce(aggregate_id, '')), octet_length(partition_key), octet_length(stream),
             octet_length(project_id), octet_length(user_id)) < 1
       or greatest(octet_length(id), octet_length(topic), octet_length(event_type), octet_length(aggregate_type), octet_length(aggregate_id),
                   octet_length(partition_key), octet_length(stream), octet_length(project_id),
                   octet_length(user_id)) > name_bytes_max
       or topic ~ whitespace
       or concat(id, topic, event_type, aggregate_type, aggregate_id, partition_key, stream, project_id, user_id) ~ control
    then
        names := array['id', 'topic', 'event_type', 'aggregate_type', 'aggregate_id', 'partition_key', 'stream', 'project_id', 'user_id'];
        texts := array[id, topic, event_type, aggregate_type, aggregate_id, partition_key, stream, project_id, user_id];
        for n in 1..9 loop
            field := names[n];
            if texts[n] is null and n > 5 then
                continue;
            elsif coalesce(texts[n], '') = '' then
                return field || ' is empty';
            elsif octet_length(texts[n]) > name_bytes_max then
                return format('%s has %s bytes; %s are allowed', field, octet_length(texts[n]), name_bytes_max);
            end if;
            found := substring(texts[n] from control);
            if found is null and n = 2 then
                found := substring(texts[n] from whitespace);
            end if;
            exit when found is not null;
        end loop;
    elsif aggregate_version < 0 then
        return format('aggregate_version is %s; it must not be negative', aggregate_version);
    elsif schema_version < 1 then
        return format('schema_version is %s; it must be 1 or more', schema_version);
    elsif trunc(extract(epoch from available_at) - extract(epoch from clock_timestamp())) > delay_max_seconds then
        return format('the event is due in %s days; at most %s are allowed',
                      trunc((extract(epoch from available_at) - extract(epoch from clock_timestamp())) / 86400),
                      delay_max_seconds / 86400);
    elsif max_attempts not between 1 and 1000 then
        return format('max_attempts is %s; 1 to 1000 are allowed', max_attempts);
    elsif base_delay_ms not between 1 and 86400000 then
        return format('base_delay_ms is %s; 1 to 86400000 are allowed', base_delay_ms);
    elsif max_delay_ms not between 1 and 86400000 then
        return format('max_delay_ms is %s; 1 to 86400000 are allowed', max_delay_ms);
    elsif max_delay_ms < base_delay_ms then
        return format('max_delay_ms is %s; it must not be below base_delay_ms', max_delay_ms);
    elsif backoff_multiplier not between 1 and 10 then
        return format('backoff_multiplier is %s; 1.0 to 10.0 are allowed', replace(backoff_multiplier::text, 'Infinity', 'inf'));
    elsif headers <> '{}' then
        if jsonb_typeof(headers) <> 'object' then
            return 'headers are not an object';
        end if;
        number := (select count(*) from jsonb_object_keys(headers));
        if number > headers_max then
            return format('the event has %s headers; %s are allowed', number, headers_max);
        end if;
        number := 0;
        for header in select h.key, h.value, headers ->> h.key as text from jsonb_each(headers) h order by h.key collate "C" loop
            if jsonb_typeof(header.value) not in ('string', 'number', 'boolean') then
                return format('header `%s` is not a text', header.key);
            elsif header.key = '' then
                return 'a header''s name is empty';
            elsif octet_length(header.key) > name_bytes_max then
                return format('a header''s name has %s bytes; %s are allowed', octet_length(header.key), name_bytes_max);
            end if;
            field := 'a header''s name';
            found := coalesce(substring(header.key from control), substring(header.key from '[^\u0021-\u0039\u003b-\u007e]'));
            exit when found is not null;
            field := 'a header''s value';
            found := substring(header.text from control);
            exit when found is not null;
            number := number + octet_length(header.key) + octet_length(header.text);
        end loop;
        if found is null and number > headers_bytes_max then
            return format('the headers have %s bytes; %s are allowed', number, headers_bytes_max);
        end if;
    end if;
    if found is not null then
        return format('%s contains ''%s'', which can''t be stored or sent', field, case
            when found = E'\t' then '\t' when found = E'\n' then '\n' when found = E'\r' then '\r'
            when found = '''' then '\''' when found = '\' then '\\'
            when found ~ control or (found <> ' ' and found ~ whitespace) then '\u{' || to_hex(ascii(found)) || '}'
            else found end);
    end if;

    if payload_bytes_max is null then
        return format('the setting pillarbox.payload_bytes_max is "%s", and must be a number of bytes, like 1048576', bytes_max_set);
    elsif octet_length(payload) > payload_bytes_max then
        return format('the payload has %s bytes; %s are allowed. Store the large part elsewhere and send a reference, or raise the limit',
                      octet_length(payload), payload_bytes_max);
    elsif payload is null then
        return 'the payload is not JSON: it is SQL''s null (JSON''s is written ''null'')';
    end if;
    begin
        -- A subtransaction that writes nothing, so it uses no transaction id.
        perform payload::json;
    exception
        when statement_too_complex then
            return format('the payload is nested deeper than %s levels', depth_max);
        when data_exception then
            get stacked diagnostics found = pg_exception_detail;
            return 'the payload is not JSON: ' || coalesce(nullif(found, ''), sqlerrm);
    end;
    -- Few payloads have enough brackets to be too deep. In those, brackets within strings don't count: without
    -- escaped characters, every second part between quotes is a string. Everything except brackets is removed, and
    -- then one level of nesting after the other.
    if octet_length(payload) > 2 * depth_max
       and octet_length(payload) - octet_length(translate(payload, '[{', '')) > depth_max
    then
        found := (select string_agg(part, '' order by n)
                  from unnest(string_to_array(replace(replace(payload, '\\', ''), '\"', ''), '"')) with ordinality p (part, n)
                  where n % 2 = 1);
        found := translate(found, '{},:-+.0123456789eEtrufalsn' || E' \t\n\r', '[]');
        number := 0;
        while found <> '' loop
            if number = depth_max then
                return format('the payload is nested deeper than %s levels', depth_max);
            end if;
            found := replace(found, '[]', '');
            number := number + 1;
        end loop;
    end if;
    return null;
end $function$;
