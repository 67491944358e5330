-- Deletes the row of an event or a consumer that has ended for good. Served by the primary key. Locks its
-- row; in SQLite the database.
delete from {attempts} where consumer_group = $1 and event_id = $2
