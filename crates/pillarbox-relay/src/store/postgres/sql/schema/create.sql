-- The outbox, version 5. Every statement can be run again and then changes nothing; over versions 2 to 4 it brings those
-- up to date.
--
-- An application's role needs: insert and select on {events}, select on {events_asleep}, {events_pressure} and the sequence
-- {events_seq}, and usage on the schema of the function it calls.
-- The relay's role needs: select, insert, update and delete on all of these tables, and select and update on the
-- sequences {events_seq} and {events_asleep}.

-- Sinks take UTF-8. In another encoding a single byte that has no equivalent in it would make every page that holds it
-- unreadable, and so stop all delivery.
do $$ begin
    if getdatabaseencoding() <> 'UTF8' then
        raise exception using errcode = 'PB403', message = format(
            'the database %I has the encoding %s, and the outbox needs UTF8. Make one with: create database … encoding ''UTF8'' template template0',
            current_database(), getdatabaseencoding());
    end if;
end $$;

-- A payload is kept as the bytes it was written with. A domain checks that they are JSON when they are written; a check
-- constraint would parse every payload again each time its row is settled.
do $$ begin
    create domain {events_json} as text constraint is_json check (value::json is not null);
exception when duplicate_object then null;
end $$;

create table if not exists {events} (
    -- Before seq: a transaction must have its xid before it takes a seq, or "every seq up to here is decided" can't be
    -- known. See the relay's discover.rs.
    txid                xid8 not null default pg_current_xact_id(),
    seq                 bigint generated always as identity (sequence name {events_seq}) primary key,
    -- Generated, so that a plain insert from any language has one.
    lane                smallint not null
                        generated always as ((hashtextextended(coalesce(partition_key, aggregate_id), 0) & 255)::smallint) stored,
    id                  uuid not null default gen_random_uuid() constraint {index_id} unique,
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
    -- The moment of the insert, not of the transaction's start: closer to the commit, which nothing can record.
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
-- Room on the page for each row's settled version, so that settling is a HOT update.
with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_insert_scale_factor = 0.1,
      autovacuum_analyze_scale_factor = 0.1);

-- No index may mention a column that settling changes, not even in a predicate: updates would not be HOT any more.
-- With seq, so that "did a transaction since then write below this seq?" is answered by the index alone. In an outbox of an
-- earlier version it is on txid only, which serves the same questions by reading the rows.
create index if not exists {index_txid} on {events} (txid, seq);

-- Failing and held events, and delayed ones: the few that wait. due_at is set for a key's failing head and for delayed
-- events, and null for what is held behind a head. A blocked one is dead, and its key waits until somebody replays or
-- discards it.
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

-- Who holds a lane. Changes only when a lane changes hands, so that the fence in every settlement reads 256 rows and
-- never the dead versions that renewals leave behind while some long transaction keeps its snapshot.
create table if not exists {events_lanes} (
    lane   smallint primary key,
    owner  uuid,
    epoch  bigint not null default 0
);
-- What a heartbeat writes for each lane.
create table if not exists {events_leases} (
    lane         smallint primary key,
    lease_until  timestamptz not null default '-infinity',
    low_mark     bigint not null default 0
) with (fillfactor = 25);
-- Every transaction below this xid was read when the low mark was written: what a later one wrote at or below the low mark
-- shows that an assumption behind it is broken. 0: not known.
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
-- What keeps a relay from delivering, a text each.
alter table {events_relays} add column if not exists troubles jsonb not null default '[]';

-- What died, why, and what became of it. The event itself stays in the main table.
create table if not exists {dead} (
    seq          bigint primary key,
    id           uuid not null,
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
    new_id  uuid
);
create index if not exists {index_recoveries_seq} on {events_recoveries} (seq);

-- What people were told about dead letters: a row for each fingerprint.
create table if not exists {events_notices} (
    fingerprint   text primary key,
    -- Notices so far: whoever tells the next one makes it one more, so that only one relay does.
    n             bigint not null,
    state         text not null constraint {index_notices_state} check (state in ('open', 'recovered')),
    count         bigint not null,
    last_died_at  timestamptz not null,
    told_at       timestamptz not null,
    about         text not null
);
-- Notices on their way, for each channel. due_at is the end of the lease while one is tried, and null when it was given up.
create table if not exists {events_notice_sends} (
    channel      text not null,
    fingerprint  text not null,
    n            bigint not null,
    id           uuid not null,
    body         text not null,
    made_at      timestamptz not null,
    due_at       timestamptz,
    attempts     integer not null default 0,
    error        text,
    primary key (channel, fingerprint, n)
);
-- When the reprocessor ran last, by the names in the configuration.
create table if not exists {events_schedules} (
    name         text primary key,
    last_run_at  timestamptz not null
);

-- The second until which a relay sleeps and wants waking by NOTIFY. A sequence, because it is changed in place: a row
-- would leave dead versions that every insert of an event would step over while a long transaction is open.
create sequence if not exists {events_asleep} as bigint minvalue 0 start 0;

create table if not exists {events_meta} (
    only_row           boolean primary key default true constraint {index_meta_only_row} check (only_row),
    version            integer not null,
    -- xids mean nothing in another cluster: after a dump and restore they are rebased.
    system_identifier  bigint not null
);
-- The files of the table and of its sequence that the low marks belong to. `truncate`, with or without `restart identity`,
-- gives them new ones. Null: not known, and the low marks are not used.
alter table {events_meta} add column if not exists events_file bigint, add column if not exists seq_file bigint;
insert into {events_meta} (version, system_identifier, events_file, seq_file)
select 5, system_identifier, pg_relation_filenode('{events}'::regclass)::bigint,
       pg_relation_filenode('{events_seq}'::regclass)::bigint
from pg_control_system() on conflict do nothing;
update {events_meta} set version = 5 where version between 2 and 4;
