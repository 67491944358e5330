-- Figures for metrics and health: a name and a number in each row. Its cost is bounded. It reads at most $1 events
-- from the lowest low mark on (by the primary key), $1 rows of the side table and $1 open dead letters.
-- $1 how many rows at most
with scanned as materialized (
    select seq, status, created_at
    from {events}
    where seq > (select min(low_mark) from {events_lanes})
    order by seq
    limit $1
),
parked as materialized (
    select seq, lane, key, state from {events_parked} order by seq limit $1
),
open_letters as materialized (
    select reason from {dead} where state = 'open' order by seq limit $1
),
oldest (created_at) as (
    select min(created_at) from scanned where status = 'pending'
    union all
    select created_at from {events}
    where seq = (select min(seq) from parked where state in ('failed', 'held'))
)
select 'pending', count(*) filter (where status = 'pending') from scanned
union all
select 'not_counted',
    iif(count(*) = $1, max((select coalesce(max(seq), 0) from {events}) - max(scanned.seq), 0), 0)
from scanned
union all
select state, count(*) from parked group by state
union all
select 'keys_held', count(*) from (select distinct lane, key from parked where state <> 'delayed')
union all
select 'dead ' || reason, count(*) from open_letters group by reason
union all
select 'oldest_age', {now} - min(created_at) from oldest
union all
select 'lanes_without_owner', count(*) from {events_lanes} where owner is null or lease_until <= {now}
union all
select 'relays', count(*) from {events_relays} where expires_at > {now}
union all
select 'rows', coalesce((select max(seq) from {events}) - (select min(seq) from {events}) + 1, 0)
union all
select 'table_bytes', page_count * page_size from pragma_page_count(), pragma_page_size()
