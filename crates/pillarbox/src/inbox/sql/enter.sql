-- Records that a consumer is running. Served by the primary key. Locks its own row; in SQLite the database.
insert into {attempts} (consumer_group, event_id, begun, begun_at)
values ($1, $2, 0, {now})
on conflict (consumer_group, event_id) do update set begun_at = excluded.begun_at
