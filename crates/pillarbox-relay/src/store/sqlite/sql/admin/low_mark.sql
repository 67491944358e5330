-- The lowest low mark of all lanes. Reads 256 rows; blocks no writer.
select coalesce(min(low_mark), 0) from {events_lanes}
