-- Deletes classes of topics that were removed or changed. A few rows; the database's write lock is held anyway.
-- ?1: the classes that stay, as a JSON list of [place, class, topics, soft, hard, max_delay_ms]
delete from {events_pressure}
where not exists (
    select 1 from json_each(?1) as w
    where json_extract(w.value, '$[0]') = place and json_extract(w.value, '$[1]') = class
      and json_extract(w.value, '$[2]') = topics and json_extract(w.value, '$[3]') is soft
      and json_extract(w.value, '$[4]') is hard and json_extract(w.value, '$[5]') = max_delay_ms
)
