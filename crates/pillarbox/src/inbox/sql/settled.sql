-- Deletes rows of events that another consumer has processed, while the one that wrote the row died. Reads
-- the group's few rows and looks each up by the primary key. Locks what it deletes; in SQLite the database.
delete from {attempts} as a
where a.consumer_group = $1
  and exists (select 1 from {processed} as p where p.consumer_group = $1 and p.event_id = a.event_id)
