-- The group's rows. Served by the primary key; locks nothing.
select event_id, begun from {attempts} where consumer_group = $1 limit $2
