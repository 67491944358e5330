-- Writes a record if it has the given version. Returns a row if it was written. The primary key serves it; locks the
-- record.
-- $1 space  $2 name  $3 place  $4 value  $5 microseconds until it is due, or null
-- $6 microseconds until it expires, or null  $7 version
update {events_records}
set version = version + 1, value = $4, due_at = {after $5}, written_at = {now}, expires_at = {after $6}
where space = $1 and name = $2 and place = $3 and version = $7
returning 1
