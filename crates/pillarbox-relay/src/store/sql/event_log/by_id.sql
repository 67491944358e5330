-- The entries of an event. The indexes of published and of dead ids serve it.
-- $1 id
select {entry}
from {events_log} as l
where l.id = $1 and l.status = 'published'
union all
select {entry}
from {events_log} as l
where l.id = $1 and l.status = 'dead'
order by 1
