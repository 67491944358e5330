-- Dead events that are to be tried again, with no attempts counted: into the side table. Which of a key goes first is
-- settled after this. Primary keys find everything; locks the rows.
-- $1 seqs  $2 by  $3 why
with letters as (
    update {dead} d set state = 'replayed' where d.seq = any($1::bigint[]) returning d.seq
),
written as (
    update {events} e
    set status = 'failed', attempts = 0
    where e.seq = any($1::bigint[]) and e.status = 'dead'
    returning e.seq, e.lane, coalesce(e.partition_key, e.aggregate_id) as key
),
told as (
    insert into {events_recoveries} (seq, action, by, why) select seq, 'replayed', $2, $3 from letters
)
insert into {events_parked} (seq, lane, key, state, due_at)
select seq, lane, key, 'failed', null from written
on conflict (seq) do update set state = 'failed'
