-- Makes the positions void that nobody has taken. If an open transaction has taken one of them, it waits for its end. They
-- get the time of the row behind them, however late this is, so that times do not jump ahead.
-- The primary key serves it; locks the new rows.
-- $1 first  $2 last
with recursive missing (position) as (
    select cast($1 as bigint)
    union all
    select position + 1 from missing where position < $2
)
insert into {events_log} (position, status, at, seq)
select position, 'void', coalesce((select l.at from {events_log} as l where l.position > $2 order by l.position limit 1), {now}), 0
from missing
where true
on conflict (position) do nothing
