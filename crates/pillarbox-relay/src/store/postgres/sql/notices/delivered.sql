-- A notice arrived. The primary key serves it; locks the row.
-- $1 channel  $2 fingerprint  $3 n
delete from {events_notice_sends} where channel = $1 and fingerprint = $2 and n = $3
