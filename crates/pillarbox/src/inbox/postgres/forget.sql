-- Deletes the oldest thousand entries of a group that are older than the given age. Served by the index on
-- (consumer_group, processed_at). Locks the rows it deletes and skips locked ones: it waits for no lock, so
-- it can't deadlock.
with old as (
    select ctid
    from {processed}
    where consumer_group = $1 and processed_at < {now} - $2 * {microsecond}
    order by processed_at
    limit 1000
    for update skip locked
)
delete from {processed} p using old where p.ctid = old.ctid
