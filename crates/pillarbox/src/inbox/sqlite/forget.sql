-- The oldest thousand of what a group processed so long ago. Served by the index on (consumer_group, processed_at). Holds the
-- database's write lock while it deletes them.
delete from {processed}
where rowid in (
    select rowid
    from {processed}
    where consumer_group = ?1 and processed_at < ?2
    order by processed_at
    limit 1000
)
