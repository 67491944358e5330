    returning e.*
),
-- The same events in the event log, in the order of their seq, except those that it has. In the same statement, because
-- the round trips of a transaction would take longer than the insert.
logged as (
    insert into {events_log} (
        {log_columns}
    )
    select {log_published}
    from written e
    where not exists (select 1 from {events_log} l where l.id = e.id and l.status = 'published')
    {some}
    order by e.seq
