-- The pressure on a topic's class. Reads a row for each class and the sequence; locks nothing.
-- $1 topics
select null::text as id, p.class, p.pending, p.soft, p.hard,
       (extract(epoch from clock_timestamp() - p.oldest_at) * 1000)::bigint as oldest_ms,
       p.delay_ms, p.retry_after_ms, p.refused
from {events_pressure_of}($1::text[]) p
