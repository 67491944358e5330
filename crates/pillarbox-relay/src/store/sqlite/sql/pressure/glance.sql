-- What waits at most, and what was written down last. Reads 256 rows and a few; takes no lock that a writer minds.
-- ?1: the outbox's name
select (select coalesce(max(seq), 0) from sqlite_sequence where name = ?1),
       (select coalesce(min(low_mark), 0) from {events_lanes}),
       coalesce(min(at_seq), 0), coalesce(max(pending), 0), min(measured_at)
from {events_pressure}
