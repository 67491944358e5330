-- The outbox, version 8. Every statement can be run again and then changes nothing. It upgrades versions 2 to 7.
--
-- An application's role needs: insert and select on {events}, select on {events_asleep}, {events_pressure} and the
-- sequence {events_seq}, and usage on the schema of the function it calls. The relay's role needs: select, insert,
-- update and delete on all of these tables, and select and update on the sequences {events_seq} and
-- {events_asleep}.

-- Sinks need UTF-8. In another encoding, a single byte without an equivalent would make every page that contains it
-- unreadable, and so stop all delivery.
do $$ begin
    if getdatabaseencoding() <> 'UTF8' then
        raise exception using errcode = 'PB403', message = format(
            'the database %I has the encoding %s, and the outbox needs UTF8. Make one with: create database … encoding ''UTF8'' template template0',
            current_database(), getdatabaseencoding());
    end if;
end $$;

-- A payload is stored as the bytes that were written. A domain checks that they are JSON when they are written. A
-- check constraint would parse every payload again each time its row is settled.
do $$ begin
    create domain {events_json} as text constraint is_json check (value::json is not null);
exception when duplicate_object then null;
end $$;

create table if not exists {events} (
    -- Before seq: a transaction must have its xid before it takes a seq, otherwise it is unknown up to which seq
    -- all are decided. See the relay's discover.rs.
    txid                xid8 not null default pg_current_xact_id(),
    seq                 bigint generated always as identity (sequence name {events_seq}) primary key,
    -- Generated, so that a plain insert from any language has one.
    lane                smallint not null
                        generated always as ((hashtextextended(coalesce(partition_key, aggregate_id), 0) & 255)::smallint) stored,
    -- Any text of up to 255 bytes. The collation makes comparing cheap.
    id                  text collate "C" not null default gen_random_uuid()::text constraint {index_id} unique,
    topic               text not null,
    stream              text,
    event_type          text not null,
    schema_version      integer not null default 1,
    aggregate_type      text not null,
    aggregate_id        text not null,
    aggregate_version   bigint,
    partition_key       text,
    payload             {events_json} not null,
    headers             jsonb not null default '{}',
    project_id          text,
    user_id             text,
    -- The time of the insert, not of the transaction's start: it is closer to the commit, whose time can't be
    -- recorded.
    created_at          timestamptz not null default clock_timestamp(),
    available_at        timestamptz,
    status              text not null default 'pending'
                        constraint {index_status}
                        check (status in ('published', 'pending', 'failed', 'held', 'delayed', 'dead')),
    attempts            integer not null default 0,
    max_attempts        integer,
    base_delay_ms       bigint,
    max_delay_ms        bigint,
    backoff_multiplier  double precision,
    last_error          text,
    first_attempt_at    timestamptz,
    last_attempt_at     timestamptz,
    published_at        timestamptz
)
-- Room on the page for the settled version of each row, so that settling is a HOT update.
with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_insert_scale_factor = 0.1,
      autovacuum_analyze_scale_factor = 0.1);

-- No index may use a column that settling changes, not even in a predicate: updates would no longer be HOT. With
-- seq, the index alone can answer whether a transaction since then wrote below a seq. In an outbox of an earlier
-- version the index is on txid only. It serves the same queries by reading the rows.
create index if not exists {index_txid} on {events} (txid, seq);

-- Failing, held and delayed events: the few that wait. due_at is set for a key's failing head and for delayed
-- events, and null for events held behind a head. A blocking dead event has the state blocked: its key waits until a
-- person replays or discards it.
create table if not exists {events_parked} (
    seq     bigint primary key,
    lane    smallint not null,
    key     text not null,
    state   text not null,
    due_at  timestamptz,
    -- The latest failures: error, sink, relay, at.
    failures jsonb not null default '[]'
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
alter table {events_parked}
    drop constraint if exists {index_parked_state},
    add constraint {index_parked_state} check (state in ('failed', 'held', 'delayed', 'blocked'));
create index if not exists {index_parked_key} on {events_parked} (lane, key, seq);
create index if not exists {index_parked_due} on {events_parked} (lane, due_at) where due_at is not null;
create index if not exists {index_parked_head} on {events_parked} (lane, key) where due_at is not null;
create index if not exists {index_parked_blocked} on {events_parked} (lane, key, seq) where state = 'blocked';

-- Which relay holds a lane. A row changes only when its lane is taken or released. So the fence in every settlement
-- reads 256 rows, and none of the dead versions that renewals leave behind while a long transaction keeps its
-- snapshot.
create table if not exists {events_lanes} (
    lane   smallint primary key,
    owner  uuid,
    epoch  bigint not null default 0
);
-- The columns that a heartbeat writes for each lane.
create table if not exists {events_leases} (
    lane         smallint primary key,
    lease_until  timestamptz not null default '-infinity',
    low_mark     bigint not null default 0
) with (fillfactor = 25);
-- Every transaction below this xid was read when the low mark was written. If a later transaction wrote at or below
-- the low mark, an assumption behind the mark has failed. 0: unknown.
alter table {events_leases} add column if not exists seen_xid bigint not null default 0;
insert into {events_lanes} (lane) select n from generate_series(0, 255) n on conflict do nothing;
insert into {events_leases} (lane) select n from generate_series(0, 255) n on conflict do nothing;

create table if not exists {events_relays} (
    id          uuid primary key,
    name        text not null,
    joined_at   timestamptz not null default now(),
    seen_at     timestamptz not null default now(),
    expires_at  timestamptz not null
) with (fillfactor = 25);
-- What keeps a relay from delivering, one text for each trouble.
alter table {events_relays} add column if not exists troubles jsonb not null default '[]';

-- Dead letters: the event's identity, the reason, and the state. The event itself stays in the main table.
create table if not exists {dead} (
    seq          bigint primary key,
    id           text collate "C" not null,
    topic        text not null,
    key          text not null,
    event_type   text not null,
    reason       text not null,
    error        text not null,
    attempts     integer not null,
    sink         text,
    relay        text not null default '',
    fingerprint  text not null default '',
    failures     jsonb not null default '[]',
    died_at      timestamptz not null default now(),
    state        text not null default 'open'
                 constraint {index_dead_state} check (state in ('open', 'replayed', 'discarded'))
);
create index if not exists {index_dead_id} on {dead} (id);
create index if not exists {index_dead_open} on {dead} (seq) where state = 'open';
create index if not exists {index_dead_died} on {dead} (died_at);

-- What people did about dead letters.
create table if not exists {events_recoveries} (
    n       bigint generated always as identity primary key,
    seq     bigint not null,
    action  text not null constraint {index_recoveries_action} check (action in ('replayed', 'discarded')),
    at      timestamptz not null default now(),
    by      text not null,
    why     text,
    new_id  text
);
create index if not exists {index_recoveries_seq} on {events_recoveries} (seq);

-- Small rows that several relays share, for features beside delivery: notices, their deliveries, and the runs of
-- schedules. A write names the version it replaces. due_at is the end of the lease while a record is claimed, and
-- null if it can't be claimed.
create table if not exists {events_records} (
    space       text not null,
    name        text not null,
    place       bigint not null default 0,
    version     bigint not null,
    claims      integer not null default 0,
    value       text not null,
    due_at      timestamptz,
    written_at  timestamptz not null,
    expires_at  timestamptz,
    primary key (space, name, place)
);
-- What became of events, if their route has an event log. It is append-only: one row for each delivery or death, with a
-- copy of the event. Positions rise by one; a position that no transaction used becomes a void row, so that a reader
-- knows that nothing is missing. No index here is written when an event is settled without a log.
create table if not exists {events_log} (
    position           bigint generated by default as identity (sequence name {events_log_position}) primary key,
    status             text not null constraint {index_log_status} check (status in ('published', 'dead', 'void')),
    at                 timestamptz not null,
    seq                bigint not null,
    id                 text collate "C",
    topic              text,
    stream             text,
    event_type         text,
    schema_version     integer,
    aggregate_type     text,
    aggregate_id       text,
    aggregate_version  bigint,
    partition_key      text,
    project_id         text,
    user_id            text,
    correlation_id     text,
    created_at         timestamptz,
    attempts           integer,
    reason             text,
    error              text,
    headers            jsonb,
    payload            text
) with (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_scale_factor = 0.02);
-- The failed attempts before the outcome, and who wrote the entry.
alter table {events_log}
    add column if not exists failures jsonb, add column if not exists sink text, add column if not exists relay text;
-- An event is published once, however often it is sent.
create unique index if not exists {index_log_published} on {events_log} (id) where status = 'published';
create index if not exists {index_log_dead} on {events_log} (id) where status = 'dead';
create index if not exists {index_log_aggregate} on {events_log} (aggregate_id, position) where aggregate_id is not null;
create index if not exists {index_log_project} on {events_log} (project_id, position) where project_id is not null;
create index if not exists {index_log_user} on {events_log} (user_id, position) where user_id is not null;
create index if not exists {index_log_correlation} on {events_log} (correlation_id, position) where correlation_id is not null;

-- Ids were UUIDs before version 8. Changing the type writes the table anew and blocks writers meanwhile.
do $$
declare
    old record;
begin
    for old in
        select a.attrelid::regclass as name, a.attname as column, a.atthasdef as has_default
        from pg_attribute a
        where a.atttypid = 'uuid'::regtype
          and (a.attrelid, a.attname) in (
              ('{events}'::regclass, 'id'), ('{dead}'::regclass, 'id'), ('{events_log}'::regclass, 'id'),
              ('{events_recoveries}'::regclass, 'new_id'))
    loop
        if old.has_default then
            execute format('alter table %s alter column %I drop default', old.name, old.column);
        end if;
        execute format('alter table %s alter column %I type text collate "C"', old.name, old.column);
        if old.has_default then
            execute format('alter table %s alter column %I set default gen_random_uuid()::text', old.name, old.column);
        end if;
    end loop;
end $$;

-- The tables that earlier versions had instead. After the upgrade, notices are sent once more for everything that
-- is still open.
drop table if exists {events_notices}, {events_notice_sends}, {events_schedules};

-- The second until which a relay sleeps and must be woken by NOTIFY. A sequence is changed in place. A row would
-- leave dead versions, which every insert of an event would have to skip while a long transaction is open.
create sequence if not exists {events_asleep} as bigint minvalue 0 start 0;

create table if not exists {events_meta} (
    only_row           boolean primary key default true constraint {index_meta_only_row} check (only_row),
    version            integer not null,
    -- xids have no meaning in another cluster: after a dump and restore they are rebased.
    system_identifier  bigint not null
);
-- The files of the table and of its sequence that the low marks belong to. `truncate`, with or without `restart
-- identity`, gives them new ones. Null: unknown, and the low marks are not used.
alter table {events_meta} add column if not exists events_file bigint, add column if not exists seq_file bigint;
-- What the positions of the event log belong to: the file of their counter and the server's timeline. Null: unknown.
alter table {events_meta} add column if not exists log_file bigint, add column if not exists timeline text;
insert into {events_meta} (version, system_identifier, events_file, seq_file, log_file, timeline)
select 8, system_identifier, pg_relation_filenode('{events}'::regclass)::bigint,
       pg_relation_filenode('{events_seq}'::regclass)::bigint, pg_relation_filenode('{events_log_position}'::regclass)::bigint,
       left(pg_walfile_name(pg_current_wal_lsn()), 8)
from pg_control_system() on conflict do nothing;
update {events_meta} set version = 8 where version between 2 and 7;
