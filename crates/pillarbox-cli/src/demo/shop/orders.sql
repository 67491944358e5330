-- The shop's own table, beside the outbox. No index beyond the key; locks the database while it is made.
create table if not exists shop_orders (
    event_id text primary key,
    customer text not null,
    item text not null,
    total_cents integer not null
);
