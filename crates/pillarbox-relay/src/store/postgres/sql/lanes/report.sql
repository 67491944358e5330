-- Writes what keeps a relay from delivering. The primary key serves it; locks the row. Writes nothing if nothing
-- has changed.
-- $1 relay  $2 troubles, as JSON
update {events_relays} set troubles = $2::jsonb where id = $1 and troubles <> $2::jsonb
