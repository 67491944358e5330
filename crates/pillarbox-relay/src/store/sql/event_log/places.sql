-- The rows after a position, without their content. The primary key serves it; locks nothing.
-- $1 after  $2 rows
select l.position, l.status, l.seq, {micros l.at}
from {events_log} as l
where l.position > $1
order by l.position
limit $2
