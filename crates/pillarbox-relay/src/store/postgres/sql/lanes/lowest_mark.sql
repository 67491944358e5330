(select case when m.events_file = pg_relation_filenode('{events}'::regclass)::bigint
                 and m.seq_file = pg_relation_filenode('{events_seq}'::regclass)::bigint
                 and q.last_value >= max(l.low_mark)
                then coalesce(min(l.low_mark), 0)
                else 0 end
      from {events_leases} l
      cross join {events_meta} m
      cross join {events_seq} q
      group by m.events_file, m.seq_file, q.last_value)