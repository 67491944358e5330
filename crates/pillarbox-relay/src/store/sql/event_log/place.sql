-- The first row at or after a position, and its time: a step of the search for a time. The primary key serves it.
-- $1 position
select l.position, {micros l.at}
from {events_log} as l
where l.position >= $1
order by l.position
limit 1
