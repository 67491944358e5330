-- The classes of topics and how they stand: a row for each, none where nothing is limited. Every seq taken since the figures
-- were counts as pending. Reads a small table and one row of the library's own; takes no lock.
select class, topics, soft, hard, max_delay_ms, pending + max(coalesce(s.seq, 0) - at_seq, 0), oldest_at, drained, measured_at
from {events_pressure}
left join sqlite_sequence as s on s.name = ?1
order by place
