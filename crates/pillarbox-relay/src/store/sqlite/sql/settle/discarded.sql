-- Marks letters as discarded. The primary key serves it.
update {dead} set state = 'discarded' where seq in (select value from json_each(?1))
