-- Allows each version of an aggregate only once. None of its columns changes, so settling does not write to it. It
-- also serves the check that versions increase.
create unique index if not exists {index_unique_versions} on {events} (aggregate_type, aggregate_id, aggregate_version)
    where aggregate_version is not null;
