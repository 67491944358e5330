-- Removes letters. The primary key finds them; locks them.
-- $1 seqs
delete from {dead} where {in seq $1}
