-- Allows each version of an aggregate only once. None of its columns changes, so settling stays a HOT update. It
-- also serves the check that versions increase. Created concurrently: producers can write meanwhile, and it can't
-- run in a transaction.
create unique index concurrently if not exists {index_unique_versions}
on {events} (aggregate_type, aggregate_id, aggregate_version) where aggregate_version is not null;
