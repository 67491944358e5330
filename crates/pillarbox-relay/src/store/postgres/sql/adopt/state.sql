-- Whether the trigger exists and fires, whether earlier rows are still to be copied, and which were asked for. Looks names up in the
-- catalogue; locks nothing.
-- $1 the table, quoted  $2 the name of the trigger
select g.tgenabled in ('O', 'A'),
       to_regclass('{events_backlog}') is not null,
       obj_description(to_regclass('{events_backlog}'), 'pg_class')
from pg_class c
left join pg_trigger g on g.tgrelid = c.oid and g.tgname = $2
where c.oid = to_regclass($1)
