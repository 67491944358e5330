-- An entity's version, if it is newer than the last. Served by the primary key; locks the entity's row.
insert into {versions} as known (consumer_group, entity_id, version)
values ($1, $2, $3)
on conflict (consumer_group, entity_id) do update set version = excluded.version
where known.version < excluded.version
