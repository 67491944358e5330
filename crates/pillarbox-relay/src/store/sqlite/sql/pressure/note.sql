-- How a class stands. The primary key serves it.
update {events_pressure} set pending = ?2, oldest_at = ?3, at_seq = ?4, drained = ?5, measured_at = ?6 where place = ?1
