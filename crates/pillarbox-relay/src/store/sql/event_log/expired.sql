-- Records the end of what has expired. The primary key serves it.
-- $1 position
insert into {events_records} (space, name, place, version, value, written_at)
values ('event_log', 'expired', 0, 1, cast(cast($1 as bigint) as text), {now})
on conflict (space, name, place) do update
set value = excluded.value, version = {events_records}.version + 1, written_at = excluded.written_at
where cast({events_records}.value as bigint) < cast(excluded.value as bigint)
