-- After deaths on topics of which only the newest event matters: of the events that wait behind a dead one and have
-- its topic, all except the newest are dead too, with a letter that is already discarded. The index on (lane, key,
-- seq) finds them, primary keys the rest; locks the rows.
-- $1 seqs of the dead  $2 error  $3 relay  $4 fingerprint
with waiting as materialized (
    select w.seq, w.id, first_value(w.id) over newest_first as newest, row_number() over newest_first as n
    from {events} e
    join {events_parked} p
        on p.lane = e.lane and p.key = coalesce(e.partition_key, e.aggregate_id) and p.seq > e.seq
        and p.state in ('failed', 'held')
    join {events} w on w.seq = p.seq and w.topic = e.topic
    where e.seq = any($1::bigint[]) and e.status = 'dead'
    window newest_first as (partition by e.seq order by w.seq desc)
),
older as materialized (
    select distinct on (seq) seq, $2 || ' "' || newest || '"' as error from waiting where n > 1 order by seq
),
gone as (
    delete from {events_parked} p using older where p.seq = older.seq
),
written as (
    update {events} e
    set status = 'dead', last_error = older.error
    from older
    where e.seq = older.seq
    returning e.seq, e.id, e.topic, coalesce(e.partition_key, e.aggregate_id) as key, e.event_type, e.attempts, older.error
),
letters as (
    insert into {dead} (seq, id, topic, key, event_type, reason, error, attempts, relay, fingerprint, state)
    select seq, id, topic, key, event_type, 'permanent_failure', error, attempts, $3, $4, 'discarded' from written
    on conflict (seq) do update
    set state = excluded.state, id = excluded.id, topic = excluded.topic, key = excluded.key, event_type = excluded.event_type,
        reason = excluded.reason, error = excluded.error, attempts = excluded.attempts, sink = null,
        relay = excluded.relay, fingerprint = excluded.fingerprint, died_at = excluded.died_at
)
insert into {events_recoveries} (seq, action, by, why)
select seq, 'discarded', $3, 'a newer event tells the latest state' from written
