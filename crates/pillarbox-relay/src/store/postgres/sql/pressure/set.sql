-- Writes the classes of topics. An unchanged class keeps its figures; a new or changed one starts with the upper
-- bound of the pending events. Reads the sequence and 256 rows; locks the rows it changes.
-- $1 places  $2 names  $3 regular expressions  $4 soft limits  $5 hard limits  $6 longest delays
with wanted as (
    select * from unnest($1::smallint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
                  w (place, class, topics, soft, hard, max_delay_ms)
),
gone as (
    delete from {events_pressure} p where not exists (select from wanted w where w.place = p.place)
)
insert into {events_pressure} as p (place, class, topics, soft, hard, max_delay_ms, pending, at_seq)
select w.place, w.class, w.topics, w.soft, w.hard, w.max_delay_ms,
       greatest(s.last_value - (select coalesce(min(low_mark), 0) from {events_leases}), 0), s.last_value
from wanted w
cross join {events_seq} s
on conflict (place) do update
set class = excluded.class, topics = excluded.topics, soft = excluded.soft, hard = excluded.hard,
    max_delay_ms = excluded.max_delay_ms, pending = excluded.pending, at_seq = excluded.at_seq,
    oldest_at = null, drained = 0, measured_at = '-infinity'
where (p.class, p.topics, p.soft, p.hard, p.max_delay_ms)
      is distinct from (excluded.class, excluded.topics, excluded.soft, excluded.hard, excluded.max_delay_ms)
