-- Frees everything a relay holds. 256 rows: a scan.
update {events_lanes} set owner = null, lease_until = 0 where owner = ?1
