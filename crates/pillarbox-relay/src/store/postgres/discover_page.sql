-- A page of pending events by seq, all visible in one snapshot ($1, or this statement's own) and none in an earlier
-- one ($2). The primary key serves it: nothing else here can use an index. Locks nothing.
-- $1 snapshot  $2 since, or null  $3 after seq  $4 lane bits  $5 events  $6 payload_bytes_max  $7 bytes
with seen as materialized (
    select coalesce($1::text::pg_snapshot, pg_current_snapshot()) as snapshot,
           $2::text::pg_snapshot as since
),
page as (
    select e.*,
           row_number() over w as n,
           sum(case when octet_length(e.payload) <= $6 then octet_length(e.payload) else 0 end) over w as running
    from {events} e
    where e.seq > $3
      and get_bit($4::bytea, e.lane) = 1
      and e.status = 'pending'
      and pg_visible_in_snapshot(e.txid, (select snapshot from seen))
      and ((select since from seen) is null or not pg_visible_in_snapshot(e.txid, (select since from seen)))
    window w as (order by e.seq rows unbounded preceding)
    order by e.seq
    limit $5
)
select case when p.n is null or p.n = 1 then s.snapshot::text end,
       pg_postmaster_start_time(),
       null::bigint,
       null::bigint,
       null::boolean,
       p.seq, p.lane, p.id, p.topic, p.stream, p.event_type, p.schema_version, p.aggregate_type, p.aggregate_id,
       p.aggregate_version, p.partition_key, case when octet_length(p.payload) <= $6 then p.payload end,
       octet_length(p.payload), p.headers, p.project_id, p.user_id, p.created_at, p.available_at, p.attempts,
       p.max_attempts, p.base_delay_ms, p.max_delay_ms, p.backoff_multiplier
from seen s
left join page p on p.n = 1 or p.running <= $7
