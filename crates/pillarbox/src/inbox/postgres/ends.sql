-- Records that an event has ended without an effect. Served by the primary key; locks the event's row.
with last as (
    delete from {attempts} where consumer_group = $1 and event_id = $2 and begun <= 1
)
update {attempts} set begun = begun - 1 where consumer_group = $1 and event_id = $2 and begun > 1
