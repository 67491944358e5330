-- The time, and the records of a space, latest first. The primary key serves it; locks nothing.
-- $1 space  $2 name or null  $3 count
select {now_micros}, r.name, r.place, r.version, r.claims, r.value, {micros r.written_at}
from (select 1) as one
left join (
    select *
    from {events_records}
    where space = $1 and ($2 is null or name = $2)
    order by written_at desc
    limit $3
) as r on true
order by r.written_at desc
