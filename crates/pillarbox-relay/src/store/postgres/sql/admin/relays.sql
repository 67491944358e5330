-- The relays that are alive, with their lanes. Reads a few rows and 256; locks nothing.
select r.id::text, r.name, (extract(epoch from clock_timestamp() - r.seen_at) * 1000000)::bigint,
       (select count(*) from {events_lanes} l join {events_leases} s on s.lane = l.lane
        where l.owner = r.id and s.lease_until > now()),
       r.troubles::text
from {events_relays} r
where r.expires_at > now()
order by r.joined_at, r.id
