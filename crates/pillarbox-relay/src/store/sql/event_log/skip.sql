-- Makes many positions void with one row, the last of them: it has the first one as its seq, and the time of the row behind
-- it, so that times do not jump ahead. Nothing changes if one of them has a row. The primary key serves it.
-- $1 first  $2 last
insert into {events_log} (position, status, at, seq)
select $2, 'void', coalesce((select l.at from {events_log} as l where l.position > $2 order by l.position limit 1), {now}), $1
where not exists (select 1 from {events_log} as l where l.position between $1 and $2)
on conflict (position) do nothing
