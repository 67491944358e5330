-- What would be lost or sent again after an undo: relays that are alive, events that are not delivered and whose rows do not
-- say so, and rows that do not show the state of their events. Reads the pending events.
select (select count(*) from {events_relays} r where r.expires_at > now()),
       (select count(*)
        from {events} n
        where n.status not in ('published', 'dead')
          and not exists (select from {adopted} t where t.{id} = {id_of_event} and ({waiting}))),
       (select count(*) from {events_unwritten})
