-- Which version it is, and whether it still lies in the cluster whose xids its rows carry. One row.
select m.version, m.system_identifier <> c.system_identifier
from {events_meta} m
cross join pg_control_system() c
