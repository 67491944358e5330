-- Deletes relays without a recent heartbeat. Scans a row for each relay.
delete from {events_relays} where expires_at <= ?1
