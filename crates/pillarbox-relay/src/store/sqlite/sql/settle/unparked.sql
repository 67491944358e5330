-- Removes settled events from the side table and returns their keys and failures. Its primary key serves it.
delete from {events_parked}
where seq in (select value from json_each(?1))
returning lane, key, seq, failures
