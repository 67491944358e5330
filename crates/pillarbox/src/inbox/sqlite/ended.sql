-- An event, or a consumer, has ended for good. Served by the primary key; the write lock is its transaction's.
delete from {attempts} where consumer_group = ?1 and event_id = ?2
