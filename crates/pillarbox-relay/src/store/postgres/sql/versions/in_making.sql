-- Whether somebody is making an index on the outbox just now. A view of the server's own; locks nothing.
-- $1 the table, quoted
select exists (select 1 from pg_stat_progress_create_index where relid = to_regclass($1))
