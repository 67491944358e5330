-- Dead events are to be tried again, with no attempts counted. Served by the primary key; writes no index.
update {events} set status = 'failed', attempts = 0
where seq in (select value from json_each(?1)) and status = 'dead'
