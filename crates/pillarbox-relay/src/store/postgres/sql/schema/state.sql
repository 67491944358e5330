-- Whether the outbox exists. Looks names up in the catalogue only.
select to_regclass('{events}') is not null, to_regclass('{events_meta}') is not null
