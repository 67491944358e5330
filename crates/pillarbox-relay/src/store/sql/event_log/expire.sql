-- Deletes the oldest entries, up to the first that is young enough. The primary key serves it, from the end of what
-- expired before: it steps over no dead rows. Locks the rows.
-- $1 age  $2 rows  $3 expired before
delete from {events_log}
where position in (
    select o.position
    from (
        select l.position, l.at, max(l.at) over (order by l.position rows unbounded preceding) as latest
        from {events_log} as l
        where l.position > $3
        order by l.position
        limit $2
    ) as o
    where o.latest < {before $1}
)
returning position
