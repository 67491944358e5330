-- Whether an index is there. Reads the small table of tables; takes no lock that a writer minds.
-- ?1: its name
select exists (select 1 from sqlite_schema where type = 'index' and name = ?1)
