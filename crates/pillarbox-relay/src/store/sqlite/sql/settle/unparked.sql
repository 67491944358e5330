-- Takes settled events out of the side table and tells their keys. Served by its primary key.
delete from {events_parked}
where seq in (select value from json_each(?1))
returning lane, key
