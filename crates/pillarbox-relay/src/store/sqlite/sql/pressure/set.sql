-- Writes classes of topics. A new class starts with the upper bound of the pending events. Reads 256 rows; the
-- database's write lock is held anyway.
-- ?1: as in clear.sql  ?2: the outbox's name
insert into {events_pressure} (place, class, topics, soft, hard, max_delay_ms, pending, at_seq)
select json_extract(w.value, '$[0]'), json_extract(w.value, '$[1]'), json_extract(w.value, '$[2]'),
       json_extract(w.value, '$[3]'), json_extract(w.value, '$[4]'), json_extract(w.value, '$[5]'),
       max(top.seq - (select coalesce(min(low_mark), 0) from {events_lanes}), 0), top.seq
from json_each(?1) as w, (select coalesce(max(seq), 0) as seq from sqlite_sequence where name = ?2) as top
where true
on conflict (place) do nothing
