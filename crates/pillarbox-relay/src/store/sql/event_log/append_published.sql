-- Appends events that this transaction has marked as published, in the order of their seq. Those that were appended
-- before are left out, so settling again changes nothing. The events' primary key and the log's index of published ids
-- serve it; locks nothing that anybody waits for. A count instead of `not exists`: PostgreSQL must not make a join of it,
-- whose plan depends on how large the log was.
-- $1 a JSON list: seq, sink, failures before the delivery  $2 relay
insert into {events_log} (
    {log_columns}
)
select {log_published}
from {told $1} as g
join {events} as e on e.seq = g.seq
where e.status = 'published'
  and (select count(*) from {events_log} as l where l.id = e.id and l.status = 'published') = 0
order by e.seq
