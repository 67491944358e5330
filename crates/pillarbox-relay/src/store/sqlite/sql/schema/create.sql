-- The outbox, schema version 8.

-- seq is the order of writing and of committing: SQLite lets one transaction write at a time. id is text, because
-- people read it and any language can write it; a blob would save 20 bytes a row. Times are microseconds since
-- 1970. The payload is the last column, so that reading the other columns never has to skip it. No index uses a
-- column that changes: settling an event writes only its row.
create table if not exists {events} (
    seq integer primary key autoincrement,
    lane integer not null check (lane between 0 and 255),
    id text not null,
    topic text not null,
    stream text,
    event_type text not null,
    schema_version integer not null default 1,
    aggregate_type text not null,
    aggregate_id text not null,
    aggregate_version integer,
    partition_key text,
    project_id text,
    user_id text,
    created_at integer not null,
    available_at integer,
    status text not null default 'pending'
        check (status in ('pending', 'published', 'failed', 'held', 'delayed', 'dead')),
    attempts integer not null default 0,
    max_attempts integer,
    base_delay_ms integer,
    max_delay_ms integer,
    backoff_multiplier real,
    last_error text,
    first_attempt_at integer,
    last_attempt_at integer,
    published_at integer,
    headers text not null default '{}',
    payload text not null
) strict;

create unique index if not exists {index_id} on {events} (id);

-- Failing, held and delayed events. Of a key's failing and held events only the first has a due_at: the others wait
-- for it. A blocking dead event has the state blocked: its key waits until a person replays or discards it.
create table if not exists {events_parked} (
    seq integer primary key,
    lane integer not null,
    key text not null,
    state text not null check (state in ('failed', 'held', 'delayed', 'blocked')),
    due_at integer,
    -- The latest failures, as a JSON list: error, sink, relay, at.
    failures text not null default '[]'
) strict;

create index if not exists {index_parked_due} on {events_parked} (due_at) where due_at is not null;
create index if not exists {index_parked_key} on {events_parked} (lane, key, seq) where state <> 'delayed';
create index if not exists {index_parked_head} on {events_parked} (lane, key, seq)
    where state <> 'delayed' and due_at is not null;
create index if not exists {index_parked_blocked} on {events_parked} (lane, key, seq) where state = 'blocked';

create table if not exists {events_lanes} (
    lane integer primary key,
    owner text,
    epoch integer not null default 0,
    lease_until integer not null default 0,
    low_mark integer not null default 0
) strict;

insert into {events_lanes} (lane)
with recursive counter (lane) as (select 0 union all select lane + 1 from counter where lane < 255)
select lane from counter where true
on conflict (lane) do nothing;

-- An event with a seq up to the low mark would not be found: the sequence went back, or another program wrote the
-- seq itself. Its lane is read again from before it, and the lane's holder starts over.
create trigger if not exists {index_below} after insert on {events}
when new.seq <= (select low_mark from {events_lanes} where lane = new.lane)
begin
    update {events_lanes} set low_mark = new.seq - 1, epoch = epoch + 1 where lane = new.lane;
end;

create table if not exists {events_relays} (
    id text primary key,
    name text not null,
    seen_at integer not null,
    expires_at integer not null,
    -- What keeps it from delivering, as a JSON list of texts.
    troubles text not null default '[]'
) strict;

-- Dead letters: the event's identity, the reason, and the state. The event itself stays in the main table.
create table if not exists {dead} (
    seq integer primary key,
    id text not null,
    topic text not null,
    key text not null,
    event_type text not null,
    reason text not null,
    error text not null,
    attempts integer not null,
    sink text,
    relay text not null default '',
    fingerprint text not null default '',
    failures text not null default '[]',
    died_at integer not null,
    state text not null default 'open' check (state in ('open', 'replayed', 'discarded'))
) strict;

create index if not exists {index_dead_id} on {dead} (id);
create index if not exists {index_dead_open} on {dead} (seq) where state = 'open';
create index if not exists {index_dead_died} on {dead} (died_at);

-- What people did about dead letters.
create table if not exists {events_recoveries} (
    n integer primary key autoincrement,
    seq integer not null,
    action text not null check (action in ('replayed', 'discarded')),
    at integer not null,
    "by" text not null,
    why text,
    new_id text
) strict;

create index if not exists {index_recoveries_seq} on {events_recoveries} (seq);

-- Small rows that several relays share, for features beside delivery: notices, their deliveries, and the runs of
-- schedules. A write names the version it replaces. due_at is the end of the lease while a record is claimed, and
-- null if it can't be claimed.
create table if not exists {events_records} (
    space text not null,
    name text not null,
    place integer not null default 0,
    version integer not null,
    claims integer not null default 0,
    value text not null,
    due_at integer,
    written_at integer not null,
    expires_at integer,
    primary key (space, name, place)
) strict;

-- What became of events, if their route has an event log. It is append-only: one row for each delivery or death, with a
-- copy of the event. Positions rise by one; a position that no transaction used becomes a void row, so that a reader
-- knows that nothing is missing. No index here is written when an event is settled without a log.
create table if not exists {events_log} (
    position integer primary key autoincrement,
    status text not null check (status in ('published', 'dead', 'void')),
    at integer not null,
    seq integer not null,
    id text,
    topic text,
    stream text,
    event_type text,
    schema_version integer,
    aggregate_type text,
    aggregate_id text,
    aggregate_version integer,
    partition_key text,
    project_id text,
    user_id text,
    correlation_id text,
    created_at integer,
    attempts integer,
    reason text,
    error text,
    -- The failed attempts before the outcome, as a JSON list, and who wrote the entry.
    failures text,
    sink text,
    relay text,
    headers text,
    payload text
) strict;
-- An event is published once, however often it is sent.
create unique index if not exists {index_log_published} on {events_log} (id) where status = 'published';
create index if not exists {index_log_dead} on {events_log} (id) where status = 'dead';
create index if not exists {index_log_aggregate} on {events_log} (aggregate_id, position) where aggregate_id is not null;
create index if not exists {index_log_project} on {events_log} (project_id, position) where project_id is not null;
create index if not exists {index_log_user} on {events_log} (user_id, position) where user_id is not null;
create index if not exists {index_log_correlation} on {events_log} (correlation_id, position) where correlation_id is not null;

-- The tables that earlier versions had instead. After the upgrade, notices are sent once more for everything that
-- is still open.
drop table if exists {events_notices};
drop table if exists {events_notice_sends};
drop table if exists {events_schedules};

-- Backpressure: a row for each class of topics; no rows if nothing is limited. topics is a JSON list of patterns;
-- an empty list matches every topic. A null limit is no limit. pending is the number of pending events when the
-- sequence of the outbox was at at_seq.
create table if not exists {events_pressure} (
    place integer primary key,
    class text not null,
    topics text not null,
    soft integer,
    hard integer,
    max_delay_ms integer not null,
    pending integer not null default 0,
    at_seq integer not null default 0,
    oldest_at integer,
    drained real not null default 0,
    measured_at integer not null default 0
) strict;

create table if not exists {events_meta} (
    name text primary key,
    value text not null
) strict;

-- Never overwrites another version, because the tables of that version are unchanged. Versions 3 to 6 lacked some
-- of these tables.
insert into {events_meta} (name, value) values ('schema_version', '8') on conflict (name) do nothing;
update {events_meta} set value = '8' where name = 'schema_version' and value in ('3', '4', '5', '6', '7');
