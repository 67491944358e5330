-- The event of a dead letter. The primary key serves it; locks nothing.
-- $1 seq  $2 id  $3 payload_bytes_max
select {columns $3}
from (
    select e.*,
           {sizes}
    from {events} e
    -- Also by its id: after a truncate, another event may have the seq.
    where e.seq = $1 and e.id = $2
) p
