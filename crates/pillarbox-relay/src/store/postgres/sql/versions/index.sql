-- The index for the check that an aggregate's versions increase. None of its columns changes, so settling stays a
-- HOT update. Created concurrently: producers can write meanwhile, and it can't run in a transaction.
create index concurrently if not exists {index_versions} on {events} (aggregate_type, aggregate_id, aggregate_version)
where aggregate_version is not null;
