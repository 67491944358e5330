-- How many rows are to be copied; null if none are listed any more. Reads one row.
select max(b.seq) from {events_backlog} b
