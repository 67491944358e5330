-- A page as discover_page.sql gives it, where payloads are small: without adding up their sizes, for which the server would
-- copy every row once more (0.7 ms for a page of 1,000 instead of 1.8). A payload over $6 is not returned, only its size:
-- the reader ends the page before it and goes on with the other statement. The primary key serves it. Locks nothing.
-- $1 snapshot  $2 since, or null  $3 after seq  $4 lane bits  $5 events  $6 bytes of one payload at most
with seen as materialized (
    select coalesce($1::text::pg_snapshot, pg_current_snapshot()) as snapshot,
           $2::text::pg_snapshot as since
)
select case when $1::text is null then s.snapshot::text end,
       pg_postmaster_start_time(),
       null::bigint,
       null::bigint,
       null::boolean,
       p.seq, p.lane, p.id, p.topic, p.stream, p.event_type, p.schema_version, p.aggregate_type, p.aggregate_id,
       p.aggregate_version, p.partition_key, case when octet_length(p.payload) <= $6 then p.payload end,
       octet_length(p.payload), p.headers, p.project_id, p.user_id, p.created_at, p.available_at, p.attempts,
       p.max_attempts, p.base_delay_ms, p.max_delay_ms, p.backoff_multiplier
from seen s
left join lateral (
    select e.*
    from {events} e
    where e.seq > $3
      and get_bit($4::bytea, e.lane) = 1
      and e.status = 'pending'
      and pg_visible_in_snapshot(e.txid, s.snapshot)
      and (s.since is null or not pg_visible_in_snapshot(e.txid, s.since))
      -- A delayed event stays pending while it waits in the side table.
      and (e.available_at is null or not exists (select from {events_parked} p where p.seq = e.seq))
    order by e.seq
    limit $5
) p on true
