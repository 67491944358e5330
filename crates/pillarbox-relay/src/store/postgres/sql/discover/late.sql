-- The smallest seq among rows of transactions that were in progress at the last snapshot ($1) and are visible in a
-- newer one ($2). Also a row of a later transaction ($4) at or below a seq that it should be above ($5). The index
-- on (txid, seq) serves both; "+ 0" and the order keep the planner from using the primary key instead. Locks
-- nothing.
select (select min(e.seq + 0)
        from {events} e
        where e.txid = any($1::text[]::xid8[])
          and pg_visible_in_snapshot(e.txid, $2::text::pg_snapshot)
          and get_bit($3::bytea, e.lane) = 1
          and e.status = 'pending'),
       (select e.seq
        from {events} e
        where e.txid >= $4::text::xid8
          and e.seq <= $5
          and get_bit($3::bytea, e.lane) = 1
          and e.status = 'pending'
        order by e.txid
        limit 1)
