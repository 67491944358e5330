-- A consumer is at work. Served by the primary key; takes the database's write lock.
insert into {attempts} (consumer_group, event_id, begun, begun_at)
values (?1, ?2, 0, ?3)
on conflict (consumer_group, event_id) do update set begun_at = excluded.begun_at
