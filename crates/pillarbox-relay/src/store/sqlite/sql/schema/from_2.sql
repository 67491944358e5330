-- Changes the parts that were different in version 2; `create.sql` then creates what is missing. SQLite can't
-- change a check, so the side table is written again: it is small.
create table {events_parked_new} (
    seq integer primary key,
    lane integer not null,
    key text not null,
    state text not null check (state in ('failed', 'held', 'delayed', 'blocked')),
    due_at integer,
    failures text not null default '[]'
) strict;
insert into {events_parked_new} (seq, lane, key, state, due_at, failures)
select seq, lane, key, state, due_at, failures from {events_parked};
drop table {events_parked};
alter table {events_parked_new} rename to {events_parked};

update {events_meta} set value = '3' where name = 'schema_version';
