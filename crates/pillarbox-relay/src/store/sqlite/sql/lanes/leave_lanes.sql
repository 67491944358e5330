-- Frees all lanes of a relay. Scans 256 rows.
update {events_lanes} set owner = null, lease_until = 0 where owner = ?1
