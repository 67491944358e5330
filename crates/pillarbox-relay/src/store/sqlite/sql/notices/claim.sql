-- Takes the delivery of a channel that has been due longest, unless an earlier one about the same fingerprint waits. Served by
-- the primary key.
-- ?1 now  ?2 channel  ?3 the lease's end
update {events_notice_sends} set due_at = ?3, attempts = attempts + 1
where rowid = (
    select s.rowid
    from {events_notice_sends} as s
    where s.channel = ?2 and s.due_at <= ?1
        and not exists (
            select 1
            from {events_notice_sends} as e
            where e.channel = s.channel and e.fingerprint = s.fingerprint and e.n < s.n and e.due_at is not null
        )
    order by s.due_at
    limit 1
)
returning fingerprint, n, id, body, attempts
