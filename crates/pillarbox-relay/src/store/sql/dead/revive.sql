-- Marks dead events to be tried again, with no attempts counted. The primary key finds them; locks them.
-- $1 seqs
update {events} set status = 'failed', attempts = 0 where {in seq $1} and status = 'dead'
