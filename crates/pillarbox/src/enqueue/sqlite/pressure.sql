-- The classes of topics and their figures; empty if nothing is limited. It returns one list in one row,
-- because each row and each value is passed between threads. Every seq taken since the figures were measured
-- counts as pending. Reads a small table and one row of SQLite's own; takes no lock.
select json_group_array(json_array(class, topics, soft, hard, max_delay_ms,
                                   pending + max(coalesce(s.seq, 0) - at_seq, 0), oldest_at, drained, measured_at))
from (select * from {events_pressure} order by place) p
left join sqlite_sequence as s on s.name = ?1
