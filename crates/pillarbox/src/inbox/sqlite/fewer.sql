-- Records that an event has ended without an effect, when it had also begun before. Served by the primary
-- key; takes the database's write lock.
update {attempts} set begun = begun - 1 where consumer_group = $1 and event_id = $2 and begun > 1
