-- What the living relays report. Reads the whole of a small table.
select troubles from {events_relays} where expires_at > ?1 and troubles <> '[]'
