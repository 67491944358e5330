-- Is the function pillarbox.enqueue there, and what keeps this role from making it? Looks names up in the catalogue; locks nothing.
select exists (select from pg_proc f where f.pronamespace = to_regnamespace('pillarbox') and f.proname = 'enqueue'),
       (
{obstacle}
       )
