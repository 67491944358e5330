-- Deletes consumers that have recorded nothing for too long, and events that have not come again. Reads the
-- group's few rows by the primary key. Locks what it deletes; in SQLite the database.
delete from {attempts}
where consumer_group = $1
  and begun_at < {now} - case begun when 0 then $2 else $3 end * {microsecond}
