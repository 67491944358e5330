-- Each version of an aggregate once. None of its columns changes, so settling stays a HOT update. It also serves the check that
-- versions increase. Concurrently: producers write on while it is made, and it can't stand in a transaction.
create unique index concurrently if not exists {index_unique_versions}
on {events} (aggregate_type, aggregate_id, aggregate_version) where aggregate_version is not null;
