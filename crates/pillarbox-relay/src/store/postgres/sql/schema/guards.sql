-- What keeps true what discovery assumes, as far as the database can. Made again by every migration.

-- A seq must be taken after the transaction's xid, one at a time: a session that caches seqs would write below the low marks.
-- Only where it is not so already: the statement gives the sequence a new file, for which the relay reads the table again.
do $$ begin
    if (select seqcache from pg_sequence where seqrelid = '{events_seq}'::regclass) <> 1 then
        alter sequence {events_seq} cache 1;
    end if;
end $$;

-- A row copied from elsewhere brings a txid that means nothing here. The condition is checked without a call of the function,
-- so an ordinary insert pays for a comparison only: 2 to 4 µs where 100,000 rows are inserted at once.
create or replace function {events_own_txid}() returns trigger language plpgsql as $$
begin
    new.txid := pg_current_xact_id();
    return new;
end $$;
create or replace trigger {index_own_txid} before insert on {events}
    for each row when (new.txid <> pg_current_xact_id()) execute function {events_own_txid}();
-- For logical replication too, which fires no ordinary trigger.
alter table {events} enable always trigger {index_own_txid};

-- After `truncate` the same seqs may be given out again. Relays may have events in flight that had these seqs, and must not settle the
-- new ones: the epochs rise in the transaction that truncates. Whoever may truncate need not have rights on the other tables.
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
