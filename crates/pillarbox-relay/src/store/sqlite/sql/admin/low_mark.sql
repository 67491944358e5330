-- The lowest low mark of all lanes. Reads 256 rows; takes no lock that a writer minds.
select coalesce(min(low_mark), 0) from {events_lanes}
