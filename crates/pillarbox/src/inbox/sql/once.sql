-- Inserts an event if the group has not seen it. The primary key decides. PostgreSQL waits for an open
-- transaction that inserted the same event, and locks only what it inserts. In SQLite the transaction holds
-- the write lock.
insert into {processed} (consumer_group, event_id, entity_id, entity_version, processed_at)
values ($1, $2, $3, $4, {now})
on conflict (consumer_group, event_id) do nothing
