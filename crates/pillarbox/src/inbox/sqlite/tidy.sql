-- Consumers that have said nothing for so long, and events that have not come again. Reads the group's few rows by the primary
-- key; takes the database's write lock.
delete from {attempts} where consumer_group = ?1 and begun_at < case begun when 0 then ?2 else ?3 end
