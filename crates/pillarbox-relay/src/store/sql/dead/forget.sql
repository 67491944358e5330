-- Deletes the recoveries of deleted letters. The index on recoveries' seq serves it; locks the rows.
-- $1 seqs
delete from {events_recoveries} where {in seq $1}
