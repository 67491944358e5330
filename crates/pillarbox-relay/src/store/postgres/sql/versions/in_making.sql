-- Whether an index on the outbox is being created now. Reads a view of the server; locks nothing.
-- $1 the table, quoted
select exists (select 1 from pg_stat_progress_create_index where relid = to_regclass($1))
