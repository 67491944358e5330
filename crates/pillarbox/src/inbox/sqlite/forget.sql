-- Deletes the oldest thousand entries of a group that are older than the given age. Served by the index on
-- (consumer_group, processed_at). Holds the database's write lock while it deletes them.
delete from {processed}
where rowid in (
    select rowid
    from {processed}
    where consumer_group = $1 and processed_at < {now} - $2 * {microsecond}
    order by processed_at
    limit 1000
)
