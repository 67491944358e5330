-- Whether the table of relays, given by its name, has the column. SQLite can't add a column only if it is missing.
select exists (select 1 from pragma_table_info(?1) where name = 'troubles')
