-- What was done about letters that are gone. Served by the recoveries' index.
delete from {events_recoveries} where seq in (select value from json_each(?1))
