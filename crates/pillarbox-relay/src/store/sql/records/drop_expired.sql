-- Deletes the expired records. Reads the whole of a small table; locks what it deletes.
delete from {events_records} where expires_at < {now}
