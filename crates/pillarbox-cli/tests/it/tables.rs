//! Outbox tables as teams have them, and the statements of their producers.

/// A table that a preset of layouts fits.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) preset: &'static str,
    pub(crate) ddl: &'static str,
    /// Inserts the event `{n}`.
    pub(crate) insert: &'static str,
    /// The event `{n}` has the key `n % keys`.
    pub(crate) keys: u64,
    /// The text of an id.
    pub(crate) id: &'static str,
    /// Whether a row is as it should be after its event was delivered, without a failed attempt.
    pub(crate) delivered: &'static str,
}

impl Table {
    /// The producer's statement for an event.
    pub(crate) fn insert(&self, n: u32) -> String {
        self.insert.replace("{n}", &n.to_string())
    }
}

pub(crate) const PROCESSED_FLAG: Table = Table {
    name: "outbox_events",
    preset: "processed-flag",
    ddl: "create table outbox_events (
     id text primary key, stream text not null, topic text not null, payload jsonb not null,
     created_at timestamptz default now(), processed bool default false, processed_at timestamptz, error text
 )",
    insert: "insert into outbox_events (id, stream, topic, payload) values ('p_{n}', 'EVENTS', 'orders.payout', '{\"n\":{n}}'::jsonb)",
    keys: 1,
    id: "id",
    delivered: "processed and processed_at is not null and error is null",
};

pub(crate) const STATUS_WORDS: Table = Table {
    name: "outbox_events",
    preset: "status-words",
    ddl: "create table outbox_events (
     id uuid primary key, aggregate_type varchar(50) not null, aggregate_id uuid not null,
     event_type varchar(100) not null, payload jsonb not null, occurred_at timestamptz default now(),
     status varchar(20) default 'PENDING', retry_count int default 0, next_attempt_at timestamptz default now(),
     last_error text, processed_at timestamptz
 );
 create index idx_outbox_poll on outbox_events (status, next_attempt_at);
 create index idx_outbox_aggregate on outbox_events (aggregate_type, aggregate_id)",
    insert: "insert into outbox_events (id, aggregate_type, aggregate_id, event_type, payload) values (gen_random_uuid(), 'orders', ('00000000-0000-4000-8000-' || lpad(({n} % 10)::text, 12, '0'))::uuid, 'Created', '{\"n\":{n}}')",
    keys: 10,
    id: "id::text",
    delivered: "status = 'PUBLISHED' and processed_at is not null and retry_count = 0 and last_error is null",
};

pub(crate) const PROJECT_EVENTS: Table = Table {
    name: "event_outbox",
    preset: "project-events",
    ddl: "create table event_outbox (
     id uuid primary key default gen_random_uuid(), aggregate_type varchar(50) not null, aggregate_id uuid not null,
     project_id uuid not null, user_id uuid not null, event_type varchar(100) not null, payload jsonb not null,
     status varchar(20) not null default 'pending', retry_count int not null default 0,
     next_retry_at timestamptz, created_at timestamptz not null default now(), published_at timestamptz,
     last_error text
 );
 create index on event_outbox (status, next_retry_at, created_at);
 create index on event_outbox (aggregate_id, created_at);
 create index on event_outbox (project_id, created_at);
 create index on event_outbox (user_id, created_at)",
    insert: "insert into event_outbox (aggregate_type, aggregate_id, project_id, user_id, event_type, payload) values ('orders', ('00000000-0000-4000-8000-' || lpad(({n} % 10)::text, 12, '0'))::uuid, gen_random_uuid(), gen_random_uuid(), 'created', '{\"n\":{n}}')",
    keys: 10,
    id: "id::text",
    delivered: "status = 'published' and published_at is not null and retry_count = 0 and last_error is null",
};

pub(crate) const STORAGE_OUTBOX: Table = Table {
    name: "storage_outbox",
    preset: "storage-outbox",
    ddl: "create table storage_outbox (
     outbox_id varchar(32) primary key, aggregate_id varchar(255) not null, aggregate_type varchar(50) not null,
     event_type varchar(100) not null, event_payload jsonb not null, event_metadata jsonb not null default '{}',
     sequence_number bigint not null, created_at timestamptz not null default now(),
     delivery_attempts integer not null default 0, delivery_status varchar(20) not null default 'pending',
     first_attempt_at timestamptz, last_attempt_at timestamptz, next_retry_at timestamptz, delivered_at timestamptz,
     target_topic varchar(255) not null, partition_key varchar(255),
     max_attempts integer not null default 5, base_delay_ms integer not null default 1000,
     max_delay_ms integer not null default 60000, backoff_multiplier decimal(3,2) not null default 2.0,
     constraint valid_delivery_status check (delivery_status in ('pending', 'processing', 'delivered', 'failed', 'dlq')),
     constraint valid_retry_config check (max_attempts > 0 and base_delay_ms > 0 and max_delay_ms >= base_delay_ms)
 );
 create index idx_outbox_delivery_status on storage_outbox (delivery_status);
 create index idx_outbox_next_retry on storage_outbox (next_retry_at) where delivery_status in ('pending', 'failed')",
    insert: "insert into storage_outbox (outbox_id, aggregate_id, aggregate_type, event_type, event_payload, sequence_number, target_topic, partition_key) values ('outbox_{n}', 'tx-' || {n} % 10, 'transaction', 'STORAGE_TRANSACTION_COMMITTED', '{\"n\":{n}}', {n}, 'orders.storage', 'tx-' || {n} % 10)",
    keys: 10,
    id: "outbox_id::text",
    delivered: "delivery_status = 'delivered' and delivered_at is not null and delivery_attempts = 0",
};

pub(crate) const DEBEZIUM: Table = Table {
    name: "outbox",
    preset: "debezium",
    ddl: "create table outbox (
     id uuid primary key, aggregatetype varchar(255) not null, aggregateid varchar(255) not null,
     type varchar(255) not null, payload text
 )",
    insert: "insert into outbox values (gen_random_uuid(), 'Order', {n} % 10, 'OrderCreated', '{\"n\":{n}}')",
    keys: 10,
    id: "id::text",
    delivered: "true",
};
