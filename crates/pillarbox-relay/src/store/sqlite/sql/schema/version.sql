-- The schema's version. The primary key serves it.
select value from {events_meta} where name = 'schema_version'
