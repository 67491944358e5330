-- The first seq after this one, whatever the status of its event. The primary key serves it; locks nothing.
-- $1 seq
select min(e.seq) from {events} e where e.seq > $1
