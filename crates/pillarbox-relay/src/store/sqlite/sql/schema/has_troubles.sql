-- Whether the table of relays, by its name, has the column. SQLite can't add one only where it is missing.
select exists (select 1 from pragma_table_info(?1) where name = 'troubles')
