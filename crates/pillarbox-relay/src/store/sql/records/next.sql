-- The microseconds until the next record of a space is due. The primary key serves it; locks nothing.
-- $1 space
select {micros min(s.due_at)} - {now_micros}
from {events_records} as s
where s.space = $1
  and s.due_at is not null
  and not exists (
      select 1
      from {events_records} as e
      where e.space = s.space and e.name = s.name and e.place < s.place and e.due_at is not null
  )
