-- Rows of events that were processed after all: by another consumer, while the one that wrote the row died. Reads the group's few
-- rows and looks each up by the primary key; locks what it deletes.
delete from {attempts} a
using {processed} p
where a.consumer_group = $1 and p.consumer_group = a.consumer_group and p.event_id = a.event_id
