-- How the classes stand. The primary key serves it; locks their rows.
-- $1 places  $2 pending  $3 when the oldest was written, in microseconds  $4 the sequence  $5 events a second
update {events_pressure} p
set pending = f.pending,
    oldest_at = timestamptz 'epoch' + f.oldest * interval '1 microsecond',
    at_seq = $4,
    drained = $5,
    measured_at = clock_timestamp()
from unnest($1::smallint[], $2::bigint[], $3::bigint[]) f (place, pending, oldest)
where p.place = f.place
