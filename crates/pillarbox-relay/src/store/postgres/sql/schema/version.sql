-- The version, and whether the outbox is still in the cluster whose xids its rows have. Reads one row.
select m.version, m.system_identifier <> c.system_identifier
from {events_meta} m
cross join pg_control_system() c
