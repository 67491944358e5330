-- The function for applications, in a schema of its own. A role that may not make it makes the tables without, and is told what to
-- ask for. Locks nothing that is in use.
do $pillarbox$
declare
    obstacle text := (
{obstacle}
    );
begin
    if obstacle is not null then
        raise warning 'the function pillarbox.enqueue was not made: %', obstacle;
        return;
    end if;
    if to_regnamespace('pillarbox') is null then
        create schema pillarbox;
    end if;
    execute $make$
{functions}
    $make$;
end $pillarbox$;
