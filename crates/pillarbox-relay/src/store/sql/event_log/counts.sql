-- Entries by hour, event type and outcome. The primary key serves it, from end to end of the positions,
-- or an index on an id and the position; locks nothing.
select {micros l.at} / 3600000000, l.event_type, l.status, count(*)
from {events_log} as l
where l.status <> 'void' and {conditions}
group by 1, 2, 3
order by 1, 2, 3
