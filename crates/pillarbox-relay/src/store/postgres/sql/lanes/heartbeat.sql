-- Records that the relay is alive, renews the lanes that it still holds, and counts the relays that are alive.
-- Primary keys serve it. Locks the lanes in their order; deleting the rows of dead relays never waits for a lock. A
-- low mark is written only on the server on which it was found: a server that crashed or was replaced since may have
-- lost the transactions on which the mark is based.
-- $1 relay  $2 name  $3 ttl in microseconds  $4 lanes  $5 epochs  $6 low marks  $7 xids read whole  $8 the server's start or null
with me as (
    insert into {events_relays} (id, name, expires_at)
    values ($1, $2, now() + $3 * interval '1 microsecond')
    on conflict (id) do update set name = excluded.name, seen_at = now(), expires_at = excluded.expires_at
),
gone as (
    delete from {events_relays}
    where id in (select id from {events_relays}
                 where expires_at < now() - interval '1 minute' and id <> $1
                 for update skip locked)
),
mine as materialized (
    select l.lane, h.low_mark, h.seen_xid
    from {events_lanes} l
    join unnest($4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[]) h (lane, epoch, low_mark, seen_xid)
      on h.lane = l.lane and h.epoch = l.epoch
    where l.owner = $1
      and coalesce($8::bigint, (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint) = (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint
    order by l.lane
    for share of l
),
renewed as (
    update {events_leases} s
    set lease_until = now() + $3 * interval '1 microsecond',
        low_mark = greatest(s.low_mark, mine.low_mark),
        seen_xid = greatest(s.seen_xid, mine.seen_xid)
    from mine
    where s.lane = mine.lane
    returning s.lane
)
select (select coalesce(array_agg(lane), '{}') from renewed),
       count(*) filter (where id <> $1),
       count(*) filter (where id < $1),
       (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint
from {events_relays}
where expires_at > now()
