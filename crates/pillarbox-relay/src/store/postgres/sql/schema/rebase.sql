-- After a restore into another cluster: rows carry xids of the old one, and those this cluster has yet to give out would
-- be read as new again and again. Every one of them was committed, so they get an xid older than any. No index serves
-- it: it reads the whole table, once. Keeps writers out while it runs.
lock table {events} in share row exclusive mode;
update {events} set txid = '3'::xid8 where txid >= pg_snapshot_xmax(pg_current_snapshot());
update {events_meta} set system_identifier = (select system_identifier from pg_control_system());
