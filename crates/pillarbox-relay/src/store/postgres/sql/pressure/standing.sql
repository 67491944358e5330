-- The state of the classes: the figures plus every seq taken since, as producers count. Reads a row for each class
-- and the sequence; locks nothing.
select p.class, p.soft, p.hard, p.max_delay_ms, p.pending + greatest(s.last_value - p.at_seq, 0),
       (extract(epoch from clock_timestamp() - p.oldest_at) * 1000000)::bigint,
       case when p.measured_at > clock_timestamp() - interval '10 seconds' then p.drained end
from {events_pressure} p
cross join {events_seq} s
order by p.place
