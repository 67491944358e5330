-- The index for the check that an aggregate's versions increase. None of its columns changes, so settling does not
-- write to it.
create index if not exists {index_versions} on {events} (aggregate_type, aggregate_id, aggregate_version)
    where aggregate_version is not null;
