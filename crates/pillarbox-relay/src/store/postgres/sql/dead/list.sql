-- Dead letters, the latest first. The primary key serves it backwards; locks nothing.
-- $1 to $8: the filter  $9 state or null  $10 below this seq or null  $11 count
select d.seq, d.id, d.topic, d.key, d.event_type, d.reason, d.error, d.attempts, d.sink, d.relay, d.fingerprint,
       (extract(epoch from d.died_at) * 1000000)::bigint, d.state,
       exists (select 1 from {events_parked} p where p.seq = d.seq and p.state = 'blocked')
from {dead} d
where {filter}
  and ($9::text is null or d.state = $9)
  and ($10::bigint is null or d.seq < $10)
order by d.seq desc
limit $11
