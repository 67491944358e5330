-- An event, if the group has not seen it. The primary key decides; waits for a transaction that has it open, and locks
-- nothing but what it inserts.
insert into {processed} (consumer_group, event_id, entity_id, entity_version)
values ($1, $2, $3, $4)
on conflict (consumer_group, event_id) do nothing
