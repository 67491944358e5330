-- Rebases xids after a restore into another cluster. Rows have xids of the old cluster. Those that this cluster has
-- not assigned yet would be read as new again and again. All of these rows were committed, so they get an xid older
-- than any. No index serves it: it reads the whole table, once. Blocks writers while it runs.
lock table {events} in share row exclusive mode;
update {events} set txid = '3'::xid8 where txid >= pg_snapshot_xmax(pg_current_snapshot());
update {events_meta} set system_identifier = (select system_identifier from pg_control_system());
