-- Where the function for applications stands. Made only when it is missing: a role without the right to make schemas can
-- use one that was made for it. Looks names up in the catalogue; locks nothing that is in use.
do $$
declare
    owner text;
begin
    if to_regnamespace('pillarbox') is null then
        if not has_database_privilege(current_database(), 'create') then
            raise exception using errcode = 'PB403', message = format(
                '%1$I may not make the schema pillarbox, in which the function pillarbox.enqueue stands. Let an owner of the database run: create schema pillarbox authorization %1$I',
                current_user);
        end if;
        create schema pillarbox;
    elsif not (has_schema_privilege('pillarbox', 'create') and has_schema_privilege('pillarbox', 'usage')) then
        raise exception using errcode = 'PB403', message = format(
            '%1$I may not make the function pillarbox.enqueue. Let the owner of the schema run: grant create, usage on schema pillarbox to %1$I',
            current_user);
    end if;
    -- Another role's outbox of the same name, in another schema of this database.
    select pg_get_userbyid(f.proowner) into owner
    from pg_proc f
    where f.pronamespace = to_regnamespace('pillarbox') and f.proname = 'enqueue' and not pg_has_role(f.proowner, 'usage');
    if found then
        raise exception using errcode = 'PB403', message = format(
            'the function pillarbox.enqueue belongs to %I, and serves every outbox of this name. Migrate as that role, or give this outbox another name in `outbox.database.table_name`: its function then stands beside it',
            owner);
    end if;
end $$;
