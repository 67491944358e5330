    returning e.*
),
-- The same events in the event log, in the order of their seq, except those that it has. In the same statement, because
-- the round trips of a transaction would take longer than the insert. `not exists` would become a join, and the plan of an
-- empty log would read the whole index for each event until the log is analyzed: 6.7 s for 2,000 events beside 14,000.
logged as (
    insert into {events_log} (
        {log_columns}
    )
    select {log_published}
    from written e
    where (select count(*) from {events_log} l where l.id = e.id and l.status = 'published') = 0
    {some}
    order by e.seq
