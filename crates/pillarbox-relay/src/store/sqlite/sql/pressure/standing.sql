-- The state of the classes: the figures plus every seq taken since, as producers count. Reads a small table; blocks
-- no writer.
select class, soft, hard,
       -- No producer is delayed here: SQLite has one writer, and a delay would block all others.
       0,
       pending + max(coalesce(s.seq, 0) - at_seq, 0), {now_micros} - oldest_at,
       iif(measured_at > {before 10000000}, drained, null)
from {events_pressure}
left join sqlite_sequence as s on s.name = '{table_name}'
order by place
