-- Consumers that have said nothing for so long, and events that have not come again. Reads the group's few rows by the primary
-- key; locks what it deletes.
delete from {attempts}
where consumer_group = $1
  and begun_at < now() - interval '1 second' * case begun when 0 then $2::double precision else $3::double precision end
