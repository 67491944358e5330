-- Rows of events that were processed after all: by another consumer, while the one that wrote the row died. Reads the group's few
-- rows and looks each up by the primary key; takes the database's write lock.
delete from {attempts}
where consumer_group = ?1
  and event_id in (select event_id from {processed} where consumer_group = ?1 and event_id = {attempts}.event_id)
