-- Puts events that wait behind a failing one of their key into the side table. Primary keys find both; locks the
-- rows.
-- $1 seqs  $2 lanes  $3 keys
with written as (
    update {events} e
    set status = 'held'
    from unnest($1::bigint[], $2::smallint[], $3::text[]) h (seq, lane, key)
    where e.seq = h.seq
      and e.status in ('pending', 'failed', 'held', 'delayed')
    returning h.seq, h.lane, h.key
)
insert into {events_parked} (seq, lane, key, state, due_at)
select seq, lane, key, 'held', null from written
on conflict (seq) do update set state = 'held', due_at = null
