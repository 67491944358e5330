-- Letters that are of no more interest. Served by the primary key.
update {dead} set state = 'discarded' where seq in (select value from json_each(?1))
