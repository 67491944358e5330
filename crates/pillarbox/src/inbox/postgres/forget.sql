-- The oldest thousand of what a group processed so long ago. Served by the index on (consumer_group, processed_at). Locks the
-- rows it deletes and passes over those that are locked: it waits for nobody, so it is in no deadlock.
with old as (
    select ctid
    from {processed}
    where consumer_group = $1 and processed_at < now() - $2::double precision * interval '1 second'
    order by processed_at
    limit 1000
    for update skip locked
)
delete from {processed} p using old where p.ctid = old.ctid
