-- Puts revived events into the side table. A later statement decides which event of a key is first. Primary keys
-- find everything; locks the rows.
-- $1 seqs
insert into {events_parked} (seq, lane, key, state, due_at)
select e.seq, e.lane, coalesce(e.partition_key, e.aggregate_id), 'failed', null
from {events} as e
where {in e.seq $1} and e.status = 'failed'
on conflict (seq) do update set state = 'failed'
