-- The last position before one that has a row. The primary key serves it.
-- $1 position
select max(l.position) from {events_log} as l where l.position < $1
