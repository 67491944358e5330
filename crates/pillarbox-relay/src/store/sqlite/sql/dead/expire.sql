-- Letters that died long ago go, except where a key waits for what becomes of one. Walks the index of when they died.
-- ?1 died before  ?2 count
delete from {dead}
where seq in (
    select d.seq
    from {dead} as d
    where d.died_at < ?1
        and not exists (select 1 from {events_parked} as p where p.seq = d.seq and p.state = 'blocked')
    order by d.died_at
    limit ?2
)
returning seq
