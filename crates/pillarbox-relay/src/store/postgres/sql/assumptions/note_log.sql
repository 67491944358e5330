-- Records what the positions of the event log belong to. The primary key serves it; the caller has locked the row.
update {events_meta}
set log_file = pg_relation_filenode('{events_log_position}'::regclass)::bigint,
    timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8)
