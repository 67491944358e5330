-- The last version of an entity that the group has processed. Served by the primary key; locks nothing.
select version from {versions} where consumer_group = $1 and entity_id = $2
