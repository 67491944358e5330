-- Figures for metrics and health: a name and a number in each row. Its cost is bounded. It reads at most $1 events
-- from the lowest low mark on (by the primary key), $1 rows of the side table and $1 open dead letters, 256 lanes and
-- the statistics of the table. Locks nothing.
-- $1 how many rows at most
with scanned as materialized (
    select e.seq, e.status, e.created_at
    from {events} e
    where e.seq > {lowest_mark}
    order by e.seq
    limit $1
),
parked as materialized (
    select p.seq, p.lane, p.key, p.state from {events_parked} p order by p.seq limit $1
),
open_letters as materialized (
    select d.reason from {dead} d where d.state = 'open' order by d.seq limit $1
),
oldest (created_at) as (
    select min(s.created_at) from scanned s where s.status = 'pending' and isfinite(s.created_at)
    union all
    select e.created_at
    from (select min(p.seq) as seq from parked p where p.state in ('failed', 'held')) p
    join {events} e on e.seq = p.seq
    where isfinite(e.created_at)
)
select 'pending', count(*) filter (where s.status = 'pending') from scanned s
union all
select 'not_counted', case when count(*) = $1 then greatest(q.last_value - max(s.seq), 0) else 0 end
from scanned s cross join {events_seq} q group by q.last_value
union all
select p.state, count(*) from parked p group by p.state
union all
select 'keys_held', count(*) from (select distinct p.lane, p.key from parked p where p.state <> 'delayed') k
union all
select 'dead ' || d.reason, count(*) from open_letters d group by d.reason
union all
select 'oldest_age', (extract(epoch from clock_timestamp() - min(o.created_at)) * 1000000)::bigint from oldest o
union all
select 'lanes_without_owner', count(*)
from {events_lanes} l join {events_leases} s on s.lane = l.lane
where l.owner is null or s.lease_until <= now()
union all
select 'relays', count(*) from {events_relays} r where r.expires_at > now()
union all
select 'rows', case when c.reltuples >= 0 then c.reltuples::bigint end
from pg_class c where c.oid = '{events}'::regclass
union all
select 'table_bytes', pg_table_size('{events}'::regclass)
union all
select 'index_bytes', pg_indexes_size('{events}'::regclass)
union all
select 'updates', t.n_tup_upd from pg_stat_all_tables t where t.relid = '{events}'::regclass
union all
select 'hot_updates', t.n_tup_hot_upd from pg_stat_all_tables t where t.relid = '{events}'::regclass
