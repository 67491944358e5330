-- The function for applications, in its own schema. A role that may not create it creates only the tables, and is
-- told what to ask for. Locks nothing that is in use.
do $pillarbox$
declare
    obstacle text := (
{obstacle}
    );
begin
    if obstacle is not null then
        raise warning 'the function pillarbox.enqueue was not created: %', obstacle;
        return;
    end if;
    if to_regnamespace('pillarbox') is null then
        create schema pillarbox;
    end if;
    execute $make$
{functions}
    $make$;
end $pillarbox$;
