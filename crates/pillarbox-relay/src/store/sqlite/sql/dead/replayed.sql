-- Letters whose events go out again. Served by the primary key.
update {dead} set state = 'replayed' where seq in (select value from json_each(?1))
