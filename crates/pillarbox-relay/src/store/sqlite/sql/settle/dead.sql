-- Marks events as dead. The primary key serves it; writes no index.
update {events} as e
set
    status = 'dead', attempts = d.value ->> 'attempts', last_error = d.value ->> '$.failure.error',
    first_attempt_at = iif(d.value ->> 'attempts' > 0, coalesce(e.first_attempt_at, ?1), e.first_attempt_at),
    last_attempt_at = iif(d.value ->> 'attempts' > 0, ?1, e.last_attempt_at)
from json_each(?2) as d
where e.seq = d.value ->> 'seq' and e.status not in ('published', 'dead')
