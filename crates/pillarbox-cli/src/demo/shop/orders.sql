-- The shop's own table, next to the outbox. No index besides the key; locks the database while it is created.
create table if not exists shop_orders (
    event_id text primary key,
    customer text not null,
    item text not null,
    total_cents integer not null
);
