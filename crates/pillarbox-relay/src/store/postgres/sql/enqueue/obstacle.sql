-- What keeps this role from creating the function pillarbox.enqueue, and what to ask for; null if nothing does.
-- Looks names up in the catalogue; locks nothing.
select case
    when to_regnamespace('pillarbox') is null and not has_database_privilege(current_database(), 'create') then format(
        '%1$I may not create the schema pillarbox, which must contain it. Let an owner of the database run: create schema pillarbox authorization %1$I',
        current_user)
    when to_regnamespace('pillarbox') is null then null
    when not (has_schema_privilege('pillarbox', 'create') and has_schema_privilege('pillarbox', 'usage')) then format(
        '%1$I may not create functions in the schema pillarbox. Let the owner of the schema run: grant create, usage on schema pillarbox to %1$I',
        current_user)
    -- Another role's outbox of the same name, in another schema of this database.
    else (
        select format(
            'it belongs to %I, and serves every outbox of this name. Migrate as that role, or give this outbox another name in `outbox.database.table_name`: its function is then in the schema of its table',
            pg_get_userbyid(f.proowner))
        from pg_proc f
        where f.pronamespace = to_regnamespace('pillarbox') and f.proname = 'enqueue' and not pg_has_role(f.proowner, 'usage')
        limit 1)
end
