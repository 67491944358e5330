-- Raises the counter of the event log's positions.
-- $1 the latest position that must not be taken again
select setval('{events_log_position}', $1::bigint)
