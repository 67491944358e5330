-- The last committed seq: one step at the end of the primary key.
select coalesce(max(seq), 0) from {events}
