-- Puts events that are not due yet into the side table, with their time. Primary keys find both; locks the rows.
-- $1 seqs  $2 lanes  $3 keys  $4 due, in microseconds since 1970
with written as (
    update {events} e
    set status = 'delayed'
    from unnest($1::bigint[], $2::smallint[], $3::text[], $4::bigint[]) d (seq, lane, key, due)
    where e.seq = d.seq
      and e.status in ('pending', 'delayed')
    returning d.seq, d.lane, d.key, d.due
)
insert into {events_parked} (seq, lane, key, state, due_at)
select seq, lane, key, 'delayed', timestamptz 'epoch' + due * interval '1 microsecond' from written
on conflict (seq) do nothing
