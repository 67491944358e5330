-- Those of these events that are dead. The primary key serves it; locks nothing.
-- $1 seqs
select seq from {events} where seq = any($1::bigint[]) and status = 'dead'
