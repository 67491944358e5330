-- An event begins, unless it was processed. Served by the primary keys of both tables; locks the event's row, and waits for a
-- transaction that is about to end it.
insert into {attempts} as known (consumer_group, event_id, begun)
select $1, $2, 1
where not exists (select from {processed} where consumer_group = $1 and event_id = $2)
on conflict (consumer_group, event_id) do update
set begun = known.begun + case when $3 then 1 else 0 end, begun_at = now()
returning begun
