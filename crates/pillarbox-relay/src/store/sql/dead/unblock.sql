-- Unblocks the keys of these dead events. The primary key finds them; locks the rows.
-- $1 seqs
delete from {events_parked} where {in seq $1} and state = 'blocked' returning lane, key
