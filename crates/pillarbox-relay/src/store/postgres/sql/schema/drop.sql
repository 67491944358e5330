-- Removes the outbox: its tables, functions and sequences.
do $$
declare
    own record;
begin
    for own in
        select p.oid::regprocedure as name
        from pg_proc p
        where p.pronamespace = (select relnamespace from pg_class where oid = '{events}'::regclass)
          and quote_ident(p.proname) in (
              select quote_ident(replace(name, '"', '')) from unnest(array[{functions}]) name)
    loop
        execute format('drop function %s cascade', own.name);
    end loop;
end $$;
drop table if exists
    {events}, {dead}, {events_parked}, {events_lanes}, {events_leases}, {events_relays}, {events_recoveries},
    {events_records}, {events_log}, {events_pressure}, {events_meta};
drop sequence if exists {events_asleep};
drop domain if exists {events_json};
