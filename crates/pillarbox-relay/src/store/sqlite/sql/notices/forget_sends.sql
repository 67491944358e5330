-- Drops deliveries that were made before a time. Reads the whole of a small table.
-- ?1 before
delete from {events_notice_sends} where made_at < ?1
