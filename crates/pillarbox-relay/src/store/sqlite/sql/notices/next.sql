-- When a channel's next delivery is due. Served by the primary key; takes no lock that a writer minds.
-- ?1 channel
select min(s.due_at)
from {events_notice_sends} as s
where s.channel = ?1 and s.due_at is not null
    and not exists (
        select 1
        from {events_notice_sends} as e
        where e.channel = s.channel and e.fingerprint = s.fingerprint and e.n < s.n and e.due_at is not null
    )
