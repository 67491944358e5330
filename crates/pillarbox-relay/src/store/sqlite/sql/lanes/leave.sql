-- Removes a relay. The relays' primary key serves it.
delete from {events_relays} where id = ?1
