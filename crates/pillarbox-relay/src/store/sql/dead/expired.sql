-- Letters that died long ago, except those that block their key. The index on died_at serves it; locks the letters,
-- and skips those that are already locked.
-- $1 age in microseconds  $2 count
select d.seq
from {dead} as d
where d.died_at < {before $1}
  and not exists (select 1 from {events_parked} as p where p.seq = d.seq and p.state = 'blocked')
order by d.died_at
limit $2
{skip_locked}
