-- What people were told, the latest first. Reads the whole of a small table; takes no lock that a writer minds.
-- ?1 count
select fingerprint, n, state, count, last_died_at, told_at, about from {events_notices} order by told_at desc limit ?1
