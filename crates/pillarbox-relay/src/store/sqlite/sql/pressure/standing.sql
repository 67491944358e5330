-- How the classes stand: the figures, and every seq taken since they were, as producers count. Reads a small table; takes no lock
-- that a writer minds.
-- ?1: the outbox's name
select class, soft, hard, pending + max(coalesce(s.seq, 0) - at_seq, 0), oldest_at, drained, measured_at
from {events_pressure}
left join sqlite_sequence as s on s.name = ?1
order by place
