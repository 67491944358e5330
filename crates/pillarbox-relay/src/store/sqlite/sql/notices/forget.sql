-- Drops what is over and was told before a time. Reads the whole of a small table.
-- ?1 before
delete from {events_notices} where state = 'recovered' and told_at < ?1
