-- Records actions on dead letters, with their actor and reason. Only appends; one row for each.
-- ?1 now  ?2 seqs, each with the id of the event made in its place or null  ?3 action  ?4 by  ?5 why
insert into {events_recoveries} (seq, action, at, "by", why, new_id)
select t.value ->> 0, ?3, ?1, ?4, ?5, t.value ->> 1
from json_each(?2) as t
