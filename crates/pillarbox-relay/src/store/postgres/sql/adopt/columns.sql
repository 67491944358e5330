-- The columns of a table: the type, the type behind a domain, and the collation. Looks names up in the catalogue; locks
-- nothing.
-- $1 the table, quoted
select a.attname::text,
       case when n.nspname = 'pg_catalog' then format_type(a.atttypid, a.atttypmod)
            else format('%I.%I', n.nspname, t.typname) end,
       case when b.typtype = 'e' then 'enum' else b.typname::text end,
       (select format('%I.%I', m.nspname, c.collname)
        from pg_collation c
        join pg_namespace m on m.oid = c.collnamespace
        where c.oid = a.attcollation)
from pg_attribute a
join pg_type t on t.oid = a.atttypid
join pg_namespace n on n.oid = t.typnamespace
join pg_type b on b.oid = case when t.typtype = 'd' then t.typbasetype else t.oid end
where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped
order by a.attnum
