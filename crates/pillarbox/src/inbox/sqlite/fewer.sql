-- An event has ended without an effect, and had begun before. Served by the primary key; takes the database's write lock.
update {attempts} set begun = begun - 1 where consumer_group = ?1 and event_id = ?2 and begun > 1
