-- Letters that died long ago, with what was done about them, except where a key waits for what becomes of one. The index
-- on died_at serves it; locks the letters.
-- $1 age in microseconds  $2 count
with chosen as materialized (
    select d.seq
    from {dead} d
    where d.died_at < now() - $1 * interval '1 microsecond'
      and not exists (select 1 from {events_parked} p where p.seq = d.seq and p.state = 'blocked')
    order by d.died_at
    limit $2
    for update skip locked
),
told as (
    delete from {events_recoveries} r using chosen where r.seq = chosen.seq
),
letters as (
    delete from {dead} d using chosen where d.seq = chosen.seq returning 1
)
select count(*) from letters
