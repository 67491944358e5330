-- Sets the low marks to 0, because they are invalid: every relay starts over from the first seq. The epochs rise,
-- so that nothing from before is settled and no old low mark is written. The owners of the lanes stay, so that no
-- other relay takes a lane before its holder's lease ends. Rows of the side table whose event is gone, or whose seq
-- now belongs to a new event, are deleted. Those new events are pending and are read again. Locks the lanes in
-- their order.
select lane from {events_lanes} order by lane for update;
update {events_lanes} set epoch = epoch + 1;
update {events_leases} set low_mark = 0, seen_xid = 0;
delete from {events_parked} p
where not exists (select from {events} e where e.seq = p.seq and e.status not in ('pending', 'published'));
update {events_meta}
set events_file = pg_relation_filenode('{events}'::regclass)::bigint,
    seq_file = pg_relation_filenode('{events_seq}'::regclass)::bigint
