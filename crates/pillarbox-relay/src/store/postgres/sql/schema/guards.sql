-- Protects the assumptions of discovery, as far as the database can. Every migration creates these again.

-- A seq must be taken after the transaction's xid, one at a time: a session that caches seqs would write below the
-- low marks. Altered only if needed: the statement gives the sequence a new file, and then the relay reads the
-- table again.
do $$ begin
    if (select seqcache from pg_sequence where seqrelid = '{events_seq}'::regclass) <> 1 then
        alter sequence {events_seq} cache 1;
    end if;
end $$;

-- A row copied from elsewhere has a txid that means nothing here. The condition is checked without calling the
-- function, so an ordinary insert costs only a comparison: 2 to 4 µs when 100,000 rows are inserted at once.
create or replace function {events_own_txid}() returns trigger language plpgsql as $$
begin
    new.txid := pg_current_xact_id();
    return new;
end $$;
create or replace trigger {index_own_txid} before insert on {events}
    for each row when (new.txid <> pg_current_xact_id()) execute function {events_own_txid}();
-- Also for logical replication, which fires no ordinary trigger.
alter table {events} enable always trigger {index_own_txid};

-- After `truncate` the same seqs may be assigned again. Relays may have events in flight that had these seqs, and
-- must not settle the new ones. So the epochs rise in the transaction that truncates. A role that may truncate may
-- lack rights on the other tables.
create or replace function {events_truncated}() returns trigger language plpgsql security definer set search_path from current as $$
begin
    perform from {events_lanes} order by lane for update;
    update {events_lanes} set epoch = epoch + 1;
    update {events_leases} set low_mark = 0, seen_xid = 0;
    delete from {events_parked};
    return null;
end $$;
create or replace trigger {index_truncated} after truncate on {events}
    for each statement execute function {events_truncated}();
alter table {events} enable always trigger {index_truncated};
