-- Takes the delivery of a channel that has been due longest, unless an earlier one about the same fingerprint waits. The
-- primary key serves it; locks the one it takes.
-- $1 channel  $2 lease in microseconds
with due as materialized (
    select s.channel, s.fingerprint, s.n
    from {events_notice_sends} s
    where s.channel = $1
      and s.due_at <= clock_timestamp()
      and not exists (
          select 1
          from {events_notice_sends} e
          where e.channel = s.channel and e.fingerprint = s.fingerprint and e.n < s.n and e.due_at is not null
      )
    order by s.due_at
    limit 1
    for update skip locked
)
update {events_notice_sends} s
set due_at = clock_timestamp() + $2 * interval '1 microsecond', attempts = s.attempts + 1
from due
where s.channel = due.channel and s.fingerprint = due.fingerprint and s.n = due.n
returning s.fingerprint, s.n, s.id, s.body, s.attempts
