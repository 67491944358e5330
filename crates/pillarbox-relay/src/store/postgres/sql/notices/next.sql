-- When a channel's next delivery is due, in microseconds from now. The primary key serves it; locks nothing.
-- $1 channel
select (extract(epoch from min(s.due_at) - clock_timestamp()) * 1000000)::bigint
from {events_notice_sends} s
where s.channel = $1
  and s.due_at is not null
  and not exists (
      select 1
      from {events_notice_sends} e
      where e.channel = s.channel and e.fingerprint = s.fingerprint and e.n < s.n and e.due_at is not null
  )
