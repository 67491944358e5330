-- The inbox: what each group of consumers has processed. processed_at is in microseconds.
create table if not exists {processed} (
    consumer_group text not null,
    event_id text not null,
    entity_id text,
    entity_version integer,
    processed_at integer not null,
    primary key (consumer_group, event_id)
);
-- For deleting old entries, oldest first.
create index if not exists {index} on {processed} (consumer_group, processed_at);
-- The last version of each entity, for groups that refuse stale ones. These rows are kept when old entries
-- are deleted.
create table if not exists {versions} (
    consumer_group text not null,
    entity_id text not null,
    version integer not null,
    primary key (consumer_group, entity_id)
) without rowid;
-- What consumers have begun and not ended, and (begun = 0) the consumers themselves: a few rows, written only near a start.
create table if not exists {attempts} (
    consumer_group text not null,
    event_id text not null,
    begun integer not null,
    begun_at integer not null,
    primary key (consumer_group, event_id)
) without rowid;
