-- Writes a notice down, unless another relay told this fingerprint meanwhile. Served by the primary key.
-- ?1 now  ?2 fingerprint  ?3 notices before  ?4 state  ?5 count  ?6 last death  ?7 about
insert into {events_notices} (fingerprint, n, state, count, last_died_at, told_at, about)
values (?2, ?3 + 1, ?4, ?5, ?6, ?1, ?7)
on conflict (fingerprint) do update
set n = excluded.n, state = excluded.state, count = excluded.count, last_died_at = excluded.last_died_at,
    told_at = excluded.told_at, about = excluded.about
where n = ?3
