-- A relay is gone. Served by the relays' primary key.
delete from {events_relays} where id = ?1
