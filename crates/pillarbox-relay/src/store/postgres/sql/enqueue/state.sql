-- Whether the function pillarbox.enqueue exists, and what keeps this role from creating it. Looks names up in the
-- catalogue; locks nothing.
select exists (select from pg_proc f where f.pronamespace = to_regnamespace('pillarbox') and f.proname = 'enqueue'),
       (
{obstacle}
       )
