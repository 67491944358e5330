-- Keys no longer wait for these dead events. Served by the side table's primary key.
-- ?1 seqs
delete from {events_parked}
where seq in (select value from json_each(?1)) and state = 'blocked'
returning lane, key
