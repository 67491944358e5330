-- An upper bound of the pending events, and the last figures. Reads 256 rows, the sequence and a row for each
-- class; locks nothing.
select case when s.is_called then s.last_value else 0 end,
       (select coalesce(min(low_mark), 0) from {events_leases}),
       p.at_seq, p.pending,
       case when isfinite(p.measured_at)
            then (extract(epoch from clock_timestamp() - p.measured_at) * 1000000)::bigint end
from {events_seq} s
cross join (select coalesce(min(at_seq), 0) as at_seq, coalesce(max(pending), 0) as pending,
                   min(measured_at) as measured_at
            from {events_pressure}) p
