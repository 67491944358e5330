-- An upper bound of the pending events, and the last figures. Reads 256 rows and a few; blocks no writer.
select (select coalesce(max(seq), 0) from sqlite_sequence where name = '{table_name}'),
       (select coalesce(min(low_mark), 0) from {events_lanes}),
       coalesce(min(at_seq), 0), coalesce(max(pending), 0),
       -- 0 until the first measurement.
       iif(min(measured_at) > 0, {now_micros} - min(measured_at), null)
from {events_pressure}
