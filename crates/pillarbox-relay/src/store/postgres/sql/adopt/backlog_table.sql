-- The rows that are still to be copied. While it exists, no relay starts. The comment says which rows were asked for.
create table {events_backlog} as
select 0::bigint as seq, t.{id} as id from {adopted} t with no data;
alter table {events_backlog} add primary key (seq);
comment on table {events_backlog} is {start};
