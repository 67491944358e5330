-- Writes what keeps a relay from delivering. The relays' primary key serves it.
update {events_relays} set troubles = ?2 where id = ?1
