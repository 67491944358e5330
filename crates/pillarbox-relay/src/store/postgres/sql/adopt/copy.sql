-- Copies a page of earlier rows. Their seqs are below those of all new rows. The primary keys find them.
-- $1 after seq  $2 rows
with page as materialized (
    select b.seq, b.id from {events_backlog} b where b.seq > $1 order by b.seq limit $2
),
copied as (
    insert into {events} (
        seq, {columns}
    )
    overriding system value
    select p.seq, {values}
    from page p
    join {adopted} t on t.{id} = p.id
    where {waiting}
    order by p.seq
    on conflict on constraint {index_id} do nothing
    returning 1
)
select (select max(seq) from page), (select count(*) from copied)
