-- Living relays and their lanes. Two small tables: scans.
select r.id, r.name, r.seen_at, count(l.lane), r.troubles
from {events_relays} as r
left join {events_lanes} as l on l.owner = r.id and l.lease_until > ?1
where r.expires_at > ?1
group by r.id
order by r.id
