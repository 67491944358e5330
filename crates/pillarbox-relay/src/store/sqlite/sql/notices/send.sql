-- A delivery for each channel, of a notice that was just written down. Served by the primary key.
-- ?1 now  ?2 fingerprint  ?3 n  ?4 id  ?5 body  ?6 channels
insert into {events_notice_sends} (channel, fingerprint, n, id, body, made_at, due_at)
select c.value, ?2, ?3, ?4, ?5, ?1, ?1 from json_each(?6) as c where true
on conflict (channel, fingerprint, n) do nothing
