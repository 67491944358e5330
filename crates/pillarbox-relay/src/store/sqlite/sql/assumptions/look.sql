-- The last seq that was ever assigned, and the highest low mark. Reads one row and 256; blocks no writer.
-- ?1 the table's name
select coalesce((select seq from sqlite_sequence where name = ?1), 0), (select coalesce(max(low_mark), 0) from {events_lanes})
