-- A consumer is at work. Served by the primary key; locks its own row.
insert into {attempts} (consumer_group, event_id, begun)
values ($1, $2, 0)
on conflict (consumer_group, event_id) do update set begun_at = now()
