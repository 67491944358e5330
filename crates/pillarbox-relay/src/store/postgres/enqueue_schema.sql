-- Where the function for applications stands. Made only when it is missing: a role without the right to make schemas can
-- use one that was made for it.
do $$ begin
    if to_regnamespace('pillarbox') is null then
        create schema pillarbox;
    end if;
exception when insufficient_privilege then
    raise exception using errcode = 'PB403', message = format(
        '%1$I may not make the schema pillarbox, in which the function pillarbox.enqueue stands. Let an owner of the database run: create schema pillarbox authorization %1$I',
        current_user);
end $$;
