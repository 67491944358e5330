-- Inserts a record if it does not exist. Returns a row if it was inserted. The primary key serves it; locks the record.
-- $1 space  $2 name  $3 place  $4 value  $5 microseconds until it is due, or null
-- $6 microseconds until it expires, or null
insert into {events_records} (space, name, place, version, value, due_at, written_at, expires_at)
values ($1, $2, $3, 1, $4, {after $5}, {now}, {after $6})
on conflict (space, name, place) do nothing
returning 1
