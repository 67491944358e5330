-- The dead ones among these events. The primary key serves it; locks nothing.
-- $1 seqs
select seq from {events} where {in seq $1} and status = 'dead'
