-- The latest events with their status. The primary key serves it, from its end. Locks nothing. A row whose payload
-- is larger than the limit is skipped, and its payload is not loaded.
-- $1 events  $2 payload_bytes_max
select case when p.status = 'pending' and k.seq is not null then 'delayed' else p.status end,
       {columns $2}
from (select e.*,
           {sizes}
      from {events} e
      order by e.seq desc
      limit $1) p
left join {events_parked} k on k.seq = p.seq and p.status = 'pending'
order by p.seq desc
