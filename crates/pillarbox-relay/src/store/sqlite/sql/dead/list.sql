-- Dead letters, the latest first. Walks the primary key backwards; takes no lock that a writer minds.
-- ?1 to ?8: the filter  ?9 state or null  ?10 below this seq  ?11 count
select
    d.seq, d.id, d.topic, d.key, d.event_type, d.reason, d.error, d.attempts, d.sink, d.relay, d.fingerprint, d.died_at,
    d.state,
    exists (select 1 from {events_parked} as p where p.seq = d.seq and p.state = 'blocked')
from {dead} as d
where {filter}
    and (?9 is null or d.state = ?9)
    and d.seq < ?10
order by d.seq desc
limit ?11
