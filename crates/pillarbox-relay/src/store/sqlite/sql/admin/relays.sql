-- The relays that are alive and their lanes. Scans two small tables.
select r.id, r.name, {now_micros} - r.seen_at, count(l.lane), r.troubles
from {events_relays} as r
left join {events_lanes} as l on l.owner = r.id and l.lease_until > {now}
where r.expires_at > {now}
group by r.id
order by r.id
