-- Writes the figures of a class. The primary key serves it; locks its row.
-- $1 place  $2 pending  $3 when the oldest was written, in microseconds, or null  $4 the sequence  $5 events a second
update {events_pressure}
set pending = $2, oldest_at = {time $3}, at_seq = $4, drained = $5, measured_at = {now}
where place = $1
