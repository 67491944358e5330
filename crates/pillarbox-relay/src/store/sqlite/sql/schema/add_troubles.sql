-- The column that `create.sql` gives a new table of relays.
alter table {events_relays} add column troubles text not null default '[]'
