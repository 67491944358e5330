-- The rows to copy, in the order of their events. Reads the whole table once; locks nothing.
insert into {events_backlog} (seq, id)
select coalesce((select max(e.seq) from {events} e where e.seq < {new_rows_from}), 0) + row_number() over (order by {order}),
       t.{id}
from {adopted} t
where ({waiting}) and ({from})
  and not exists (select from {events} e where e.id = t.{id}::text collate "C")
