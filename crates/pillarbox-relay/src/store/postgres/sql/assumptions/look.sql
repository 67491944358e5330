-- What discovery assumes, as recorded and as it is now: the outbox's version and cluster, the files that the low
-- marks belong to, the sequence, the encoding; the latest position of the event log that was taken, and the latest that
-- it has or had; and what its positions belong to: the counter's file and the server's timeline. Reads 256 rows and
-- one of each catalogue; locks nothing.
select m.version,
       m.system_identifier <> c.system_identifier,
       m.events_file,
       m.seq_file,
       pg_relation_filenode('{events}'::regclass)::bigint,
       pg_relation_filenode('{events_seq}'::regclass)::bigint,
       case when s.is_called then s.last_value else s.last_value - 1 end,
       (select coalesce(max(low_mark), 0) from {events_leases}),
       (select seqcache from pg_sequence where seqrelid = '{events_seq}'::regclass),
       getdatabaseencoding()::text,
       (select case when is_called then last_value else last_value - 1 end from {events_log_position}),
       greatest(
           (select max(position) from {events_log}),
           (select cast(value as bigint) from {events_records} where space = 'event_log' and name = 'expired' and place = 0),
           0
       ),
       m.log_file,
       pg_relation_filenode('{events_log_position}'::regclass)::bigint,
       m.timeline,
       case when pg_is_in_recovery() then m.timeline else left(pg_walfile_name(pg_current_wal_lsn()), 8) end
from {events_meta} m
cross join {events_seq} s
cross join pg_control_system() c
