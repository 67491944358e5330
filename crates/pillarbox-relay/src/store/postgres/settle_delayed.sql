-- Events whose time has not come. They stay pending; the side table says when. Locks only what it inserts.
-- $1 seqs  $2 lanes  $3 keys  $4 due, in microseconds since 1970
insert into {events_parked} (seq, lane, key, state, due_at)
select seq, lane, key, 'delayed', timestamptz 'epoch' + due * interval '1 microsecond'
from unnest($1::bigint[], $2::smallint[], $3::text[], $4::bigint[]) d (seq, lane, key, due)
on conflict (seq) do nothing
