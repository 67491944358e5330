-- Counts a failure against events. The primary key serves it; writes no index.
update {events} as e
set
    status = 'failed', attempts = f.value ->> 'attempts', last_error = f.value ->> '$.failure.error',
    first_attempt_at = coalesce(e.first_attempt_at, ?1), last_attempt_at = ?1
from json_each(?2) as f
where e.seq = f.value ->> 'seq' and e.status not in ('published', 'dead')
