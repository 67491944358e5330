-- Appends a void row. Locks nothing that anybody waits for.
insert into {events_log} (status, at, seq) values ('void', {now}, 0)
returning position
