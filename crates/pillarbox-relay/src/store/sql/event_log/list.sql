-- Matching entries, the latest first. An index on an id and the position serves a filter by aggregate, project, user or
-- correlation id; otherwise the primary key does, within the given positions. Locks nothing.
select {entry}
from {events_log} as l
where l.status <> 'void' and {conditions}
order by l.position desc
limit {count}
