-- The state of an event in the outbox. The index of ids and the side table's primary key serve it; locks nothing.
-- $1 id
select e.seq, coalesce(nullif(p.state, 'blocked'), e.status), {micros e.created_at}, e.attempts, {micros e.first_attempt_at},
       {micros e.last_attempt_at}, {micros e.published_at}, e.last_error, {micros p.due_at}, {text p.failures}
from {events} as e
left join {events_parked} as p on p.seq = e.seq
where e.id = $1
