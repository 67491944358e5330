-- A payload that is not JSON becomes a JSON string.
create or replace function {events_as_json}(payload text) returns text language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    perform payload::json;
    return payload;
exception when others then
    return to_json(payload)::text;
end $$;
-- The same text for JSON paths: null if it is not JSON.
create or replace function {events_as_jsonb}(payload text) returns jsonb language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return payload::jsonb;
exception when others then
    return null;
end $$;
