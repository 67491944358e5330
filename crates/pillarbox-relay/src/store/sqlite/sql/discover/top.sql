-- The last seq committed: one step at the end of the primary key.
select coalesce(max(seq), 0) from {events}
