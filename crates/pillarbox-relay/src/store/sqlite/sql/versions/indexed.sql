-- Whether an index exists. Reads the small table of tables; blocks no writer.
-- ?1: its name
select exists (select 1 from sqlite_schema where type = 'index' and name = ?1)
