-- What keeps a relay from delivering. Served by the relays' primary key.
update {events_relays} set troubles = ?2 where id = ?1
