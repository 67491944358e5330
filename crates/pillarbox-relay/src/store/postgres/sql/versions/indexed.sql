-- Whether an index exists and is valid. The catalogue's own indexes serve it; locks nothing.
-- $1 its name, quoted
select coalesce((select i.indisvalid from pg_index i where i.indexrelid = to_regclass($1)), false)
