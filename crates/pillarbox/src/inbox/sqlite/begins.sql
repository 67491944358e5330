-- An event begins, unless it was processed. Served by the primary keys of both tables; takes the database's write lock.
insert into {attempts} (consumer_group, event_id, begun, begun_at)
select ?1, ?2, 1, ?4
where not exists (select 1 from {processed} where consumer_group = ?1 and event_id = ?2)
on conflict (consumer_group, event_id) do update set begun = begun + ?3, begun_at = excluded.begun_at
returning begun
