-- A notice did not arrive: it is due again later, or never. Served by the primary key.
-- ?1 channel  ?2 fingerprint  ?3 n  ?4 due again, or null  ?5 error
update {events_notice_sends} set due_at = ?4, error = ?5 where channel = ?1 and fingerprint = ?2 and n = ?3
