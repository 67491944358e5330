-- An event, if the group has not seen it. The primary key decides; the write lock is the transaction's own.
insert into {processed} (consumer_group, event_id, entity_id, entity_version, processed_at)
values (?1, ?2, ?3, ?4, ?5)
on conflict (consumer_group, event_id) do nothing
