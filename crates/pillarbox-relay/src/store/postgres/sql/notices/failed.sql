-- A notice did not arrive: it is due again later, or never. The primary key serves it; locks the row.
-- $1 channel  $2 fingerprint  $3 n  $4 microseconds until the next try, or null  $5 error
update {events_notice_sends}
set due_at = clock_timestamp() + $4::bigint * interval '1 microsecond', error = $5
where channel = $1 and fingerprint = $2 and n = $3
