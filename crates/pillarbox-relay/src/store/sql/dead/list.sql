-- Dead letters, latest first. The primary key serves it backwards; locks nothing.
-- $1 to $8: the filter  $9 state or null  $10 below this seq or null  $11 count
select {letter}
from {dead} as d
where {filter}
  and ($9 is null or d.state = $9)
  and ($10 is null or d.seq < $10)
order by d.seq desc
limit $11
