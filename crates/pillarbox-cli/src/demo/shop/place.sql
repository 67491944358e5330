-- Inserts one order. Served by the primary key; runs in the transaction that also writes the event.
insert into shop_orders (event_id, customer, item, total_cents) values (?, ?, ?, ?)
