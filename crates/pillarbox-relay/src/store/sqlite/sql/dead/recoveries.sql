-- What was done about a dead letter. Served by the recoveries' index; takes no lock that a writer minds.
select action, at, "by", why, new_id from {events_recoveries} where seq = ?1 order by n
