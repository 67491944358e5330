-- Relays not heard of for too long are gone. The table has a row for each relay: a scan.
delete from {events_relays} where expires_at <= ?1
