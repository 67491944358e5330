-- The inbox: what each group of consumers has processed. No index mentions a column that changes.
create table if not exists {processed} (
    consumer_group text not null,
    event_id text not null,
    entity_id text,
    entity_version bigint,
    processed_at timestamptz not null default now(),
    primary key (consumer_group, event_id)
);
-- For deleting old entries, oldest first.
create index if not exists {index} on {processed} (consumer_group, processed_at);
-- The last version of each entity, for groups that refuse stale ones. These rows are kept when old entries
-- are deleted.
create table if not exists {versions} (
    consumer_group text not null,
    entity_id text not null,
    version bigint not null,
    primary key (consumer_group, entity_id)
) with (fillfactor = 70);
-- What consumers have begun and not ended, and (begun = 0) the consumers themselves: a few rows, written only
-- near a start.
create table if not exists {attempts} (
    consumer_group text not null,
    event_id text not null,
    begun integer not null,
    begun_at timestamptz not null default now(),
    primary key (consumer_group, event_id)
);
-- An id was a UUID once. Stop the consumers first: older ones can't read a text.
do $$
declare
    old record;
begin
    for old in
        select a.attrelid::regclass as name
        from pg_attribute a
        where a.attrelid in ('{processed}'::regclass, '{attempts}'::regclass) and a.attname = 'event_id'
          and a.atttypid = 'uuid'::regtype
    loop
        execute format('alter table %s alter column event_id type text', old.name);
    end loop;
end $$;
