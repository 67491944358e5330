-- Whether the table exists and is one that can have the trigger, the schemas of the table and of the outbox (or where it
-- would be created), whether a unique index is on the column with the id alone, and whether the trigger exists. Looks
-- names up in the catalogue; locks nothing.
-- $1 the table, quoted  $2 the column with the id  $3 the name of the trigger
select c.relkind in ('r', 'p'),
       quote_ident(n.nspname),
       coalesce((select m.nspname
                 from pg_class o
                 join pg_namespace m on m.oid = o.relnamespace
                 where o.oid = to_regclass('{events}')), current_schema(), 'public')::text,
       exists (
           select
           from pg_index i
           join pg_attribute a on a.attrelid = i.indrelid and a.attname = $2
           where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indpred is null
             and i.indnkeyatts = 1 and i.indkey[0] = a.attnum
       ),
       exists (select from pg_trigger g where g.tgrelid = c.oid and g.tgname = $3)
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.oid = to_regclass($1)
