-- The smallest seq among rows of transactions that were in progress at the last snapshot ($1) and are visible in a newer
-- one ($2). The index on txid serves it; "+ 0" keeps the planner from walking the primary key instead. Locks nothing.
select min(e.seq + 0)
from {events} e
where e.txid = any($1::text[]::xid8[])
  and pg_visible_in_snapshot(e.txid, $2::text::pg_snapshot)
  and get_bit($3::bytea, e.lane) = 1
  and e.status = 'pending'
