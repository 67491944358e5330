-- The same page as page.sql, for small events. It does not add up their sizes, for which the server would copy
-- every row once more (0.7 ms for a page of 1,000 instead of 1.8). Of an event over $6 bytes only the size is
-- returned: the reader ends the page before it and continues with page.sql. Reading the sizes of headers and texts
-- makes a page of 1,000 take 0.74 ms instead of 0.46: 0.3 µs an event. The primary key serves it. Locks nothing.
-- $1 snapshot  $2 since, or null  $3 after seq  $4 lane bits  $5 events  $6 bytes of one event at most  $7 up to seq
with seen as materialized (
    select coalesce($1::text::pg_snapshot, pg_current_snapshot()) as snapshot,
           $2::text::pg_snapshot as since
)
select case when $1::text is null then s.snapshot::text end,
       pg_postmaster_start_time(),
       null::bigint,
       null::bigint,
       null::boolean,
       p.seq, p.lane,
       case when p.bytes <= $6 then p.id end,
       case when p.bytes <= $6 then p.topic end,
       case when p.bytes <= $6 then p.stream end,
       case when p.bytes <= $6 then p.event_type end,
       p.schema_version,
       case when p.bytes <= $6 then p.aggregate_type end,
       case when p.bytes <= $6 then p.aggregate_id end,
       p.aggregate_version,
       case when p.bytes <= $6 then p.partition_key end,
       case when p.bytes <= $6 then p.payload end,
       p.bytes,
       case when p.bytes <= $6 then p.headers end,
       case when p.bytes <= $6 then p.project_id end,
       case when p.bytes <= $6 then p.user_id end,
       p.created_at, p.available_at, p.attempts, p.max_attempts, p.base_delay_ms, p.max_delay_ms, p.backoff_multiplier,
       0, 0
from seen s
left join lateral (
    select e.*,
           octet_length(e.payload)
           -- A compressed value may be much larger. Then page.sql finds the exact size.
           + pg_column_size(e.headers) * case when pg_column_compression(e.headers) is null then 1 else 256 end
           + octet_length(e.id) + octet_length(e.topic) + octet_length(e.event_type) + octet_length(e.aggregate_type)
           + octet_length(e.aggregate_id) + coalesce(octet_length(e.stream), 0)
           + coalesce(octet_length(e.partition_key), 0) + coalesce(octet_length(e.project_id), 0)
           + coalesce(octet_length(e.user_id), 0)::bigint as bytes
    from {events} e
    where e.seq > $3
      and e.seq <= $7
      and get_bit($4::bytea, e.lane) = 1
      and e.status = 'pending'
      and pg_visible_in_snapshot(e.txid, s.snapshot)
      and (s.since is null or not pg_visible_in_snapshot(e.txid, s.since))
      -- A delayed event stays pending while it waits in the side table.
      and (e.available_at is null or not exists (select from {events_parked} p where p.seq = e.seq))
    order by e.seq
    limit $5
) p on true
