-- Copies each new row of the adopted table into the outbox, in the producer's transaction. The producer needs no right to
-- the outbox. Nothing here refuses a row: what can't be delivered becomes a dead letter.
create or replace function {events_capture}() returns trigger language plpgsql security definer set search_path = {path} as $capture$
begin
    insert into {events} (
        {columns}
    )
    values (
        {values}
    )
    on conflict on constraint {index_id} do nothing;
    -- Notifies a relay that sleeps, once per transaction however often this runs.
    perform pg_notify('{channel}', '') from {events_asleep} where last_value > extract(epoch from clock_timestamp());
    return null;
end $capture$;
