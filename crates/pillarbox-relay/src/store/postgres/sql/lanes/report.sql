-- What keeps a relay from delivering. The primary key serves it. Writes nothing when nothing has changed.
-- $1 relay  $2 troubles, as JSON
update {events_relays} set troubles = $2::jsonb where id = $1 and troubles <> $2::jsonb
