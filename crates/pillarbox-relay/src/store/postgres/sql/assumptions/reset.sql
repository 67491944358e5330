-- The low marks mean nothing any more: every relay starts over, from the first seq on. The epochs rise, so that nothing of the
-- time before is settled and no low mark of then is written. Who holds a lane stays, so that nobody else takes it before its
-- holder's lease is over. What the side table knows of events that are not there, or of new ones with the seq of an
-- old one, goes; these are pending, and are read again. Locks the lanes in their order.
select lane from {events_lanes} order by lane for update;
update {events_lanes} set epoch = epoch + 1;
update {events_leases} set low_mark = 0, seen_xid = 0;
delete from {events_parked} p
where not exists (select from {events} e where e.seq = p.seq and e.status not in ('pending', 'published'));
update {events_meta}
set events_file = pg_relation_filenode('{events}'::regclass)::bigint,
    seq_file = pg_relation_filenode('{events_seq}'::regclass)::bigint
