-- Open dead letters of a fingerprint that died after a time. Walks the index of when they died, from that time on; takes no lock
-- that a writer minds.
-- ?1 fingerprint  ?2 after
select count(*) from {dead} as d where d.died_at > ?2 and d.fingerprint = ?1 and d.state = 'open'
