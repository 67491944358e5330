-- Open dead letters of a fingerprint that died after a time. The index on died_at serves it, from that time on; locks nothing.
-- $1 fingerprint  $2 after, in microseconds
select count(*)
from {dead} d
where d.died_at > timestamptz 'epoch' + $2 * interval '1 microsecond' and d.fingerprint = $1 and d.state = 'open'
