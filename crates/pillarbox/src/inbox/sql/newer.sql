-- Stores an entity's version if it is newer than the last one. Served by the primary key. Locks the entity's
-- row; in SQLite the transaction holds the write lock.
insert into {versions} as known (consumer_group, entity_id, version)
values ($1, $2, $3)
on conflict (consumer_group, entity_id) do update set version = excluded.version
where known.version < excluded.version
