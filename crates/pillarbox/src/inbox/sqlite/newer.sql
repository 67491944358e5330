-- An entity's version, if it is newer than the last. Served by the primary key; the write lock is the transaction's own.
insert into {versions} (consumer_group, entity_id, version)
values (?1, ?2, ?3)
on conflict (consumer_group, entity_id) do update set version = excluded.version
where version < excluded.version
