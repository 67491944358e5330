-- Keys no longer wait for these dead events. The primary key finds them; locks the rows.
-- $1 seqs
delete from {events_parked} p where p.seq = any($1::bigint[]) and p.state = 'blocked' returning p.lane, p.key
