-- Records that an event begins, unless it was processed. Served by the primary keys of both tables.
-- PostgreSQL locks the event's row, and waits for a transaction that is about to end it. SQLite locks the
-- database.
insert into {attempts} as known (consumer_group, event_id, begun, begun_at)
select $1, $2, 1, {now}
where not exists (select 1 from {processed} where consumer_group = $1 and event_id = $2)
on conflict (consumer_group, event_id) do update
set begun = known.begun + case when $3 then 1 else 0 end, begun_at = excluded.begun_at
returning begun
