-- The lowest low mark of all lanes. Reads 256 rows; locks nothing.
select coalesce(min(low_mark), 0) from {events_leases}
