-- The last seq taken, and then a new xid. The order matters: the xid is assigned as the row leaves the CTE. A
-- transaction that took a seq up to that value had its xid before, so it has a smaller one. Reads one page, locks
-- nothing.
with taken as materialized (
    select case when is_called then last_value else 0 end as seq from {events_seq}
)
select taken.seq, pg_current_xact_id()::text, pg_postmaster_start_time() from taken
