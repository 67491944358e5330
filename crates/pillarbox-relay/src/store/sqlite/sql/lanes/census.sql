-- The number of relays that are alive, and how many of them come before this one. Scans a row for each relay.
select count(*), count(*) filter (where id < ?1) from {events_relays}
