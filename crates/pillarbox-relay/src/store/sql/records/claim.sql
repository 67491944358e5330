-- Leases the record of a space that has been due longest, unless an earlier one of its queue waits. The primary key
-- serves it; locks the record.
-- $1 space  $2 lease in microseconds
update {events_records}
set due_at = {after $2}, claims = claims + 1, version = version + 1
where (space, name, place) = (
    select s.space, s.name, s.place
    from {events_records} as s
    where s.space = $1
      and s.due_at <= {now}
      and not exists (
          select 1
          from {events_records} as e
          where e.space = s.space and e.name = s.name and e.place < s.place and e.due_at is not null
      )
    order by s.due_at
    limit 1
    {skip_locked}
)
returning name, place, version, claims, value, {micros written_at}
