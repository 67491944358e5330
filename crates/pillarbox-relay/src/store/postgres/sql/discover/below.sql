-- A pending event at or below its lane's low mark, of a transaction that was not yet read when the mark was
-- written. There should be none. The index on (txid, seq) serves it, so events written since are skipped without
-- being read. The order keeps the planner from using the primary key instead. Locks nothing.
-- $1 the low mark of every lane, in their order; -1 for one that is not read  $2 the highest of them
select e.seq
from {events} e
where e.txid >= (select min(s.seen_xid)::text::xid8
                 from {events_leases} s
                 where s.low_mark > 0 and ($1::bigint[])[s.lane + 1] > 0)
  and e.seq <= $2
  and e.seq <= ($1::bigint[])[e.lane + 1]
  and e.status = 'pending'
order by e.txid
limit 1
