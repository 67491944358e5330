-- Sets the state of letters. The primary key finds them; locks them.
-- $1 seqs  $2 state
update {dead} set state = $2 where {in seq $1}
