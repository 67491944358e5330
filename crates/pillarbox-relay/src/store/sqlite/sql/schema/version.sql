-- The schema's version. Served by the primary key.
select value from {events_meta} where name = 'schema_version'
