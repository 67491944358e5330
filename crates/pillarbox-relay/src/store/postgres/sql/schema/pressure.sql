-- Backpressure: a row for each class of topics; no rows if nothing is limited. The relay writes them, and producers
-- read them. Updates are HOT, and a page has room for many.
create table if not exists {events_pressure} (
    -- A topic belongs to the first class that matches it.
    place         smallint primary key,
    class         text not null,
    -- A regular expression.
    topics        text not null,
    -- Null: no such limit.
    soft          bigint,
    hard          bigint,
    max_delay_ms  bigint not null,
    -- How many events were pending when the sequence was at at_seq, and the time of the oldest.
    pending       bigint not null default 0,
    at_seq        bigint not null default 0,
    oldest_at     timestamptz,
    -- Delivered events for each second, of all classes.
    drained       double precision not null default 0,
    measured_at   timestamptz not null default '-infinity'
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);

-- The state of the classes of these topics: the figures plus every seq taken since. So the estimate is never too
-- low, whichever program wrote events and whether or not a relay is alive. The same as `Limit::judge` in Rust. It
-- takes one topic at a time, so that the query is planned once in a session. A function in pure SQL would be
-- inlined into the caller's statement. The cost for one topic and for many would then differ so much that the
-- statement would be planned each time: 1 to 2 ms.
create or replace function {events_pressure_of}(topics text[])
returns table (class text, pending bigint, soft bigint, hard bigint, oldest_at timestamptz,
               delay_ms bigint, retry_after_ms bigint, refused boolean)
language plpgsql stable rows 1
as $$
declare
    asked text;
begin
    foreach asked in array topics loop
        return query
        select c.class, e.n, c.soft, c.hard, c.oldest_at,
               case when e.n > c.soft
                    then least(c.max_delay_ms,
                               greatest(1, floor(c.max_delay_ms
                                                 * least(1, (e.n - c.soft)::double precision
                                                            / greatest(coalesce(c.hard, c.soft * 2) - c.soft, 1))))::bigint)
                    else 0 end,
               case when c.drained > 0 and c.measured_at > statement_timestamp() - interval '10 seconds'
                    then least(60000, greatest(250, floor(1000 * (e.n - coalesce(c.soft, c.hard, 0)) / c.drained)))::bigint
                    else 5000 end,
               coalesce(e.n >= c.hard, false)
        from (select p.* from {events_pressure} p where asked ~ p.topics order by p.place limit 1) c
        cross join lateral (
            select c.pending + greatest(s.last_value - c.at_seq, 0) as n from {events_seq} s
        ) e;
    end loop;
end
$$;

-- Applies the limits for one topic, for any language: waits above the soft limit and raises PB429 at the hard one.
create or replace function {events_mind_pressure}(topic text) returns void
language plpgsql
as $$
declare
    asked record;
begin
    select * into asked from {events_pressure_of}(array[topic]);
    if not found then
        return;
    end if;
    if asked.refused then
        raise exception using
            errcode = 'PB429',
            message = format('the outbox takes no more events of class %s: %s are pending, the limit is %s. Try again in %s s',
                             asked.class, asked.pending, asked.hard, round(asked.retry_after_ms / 1000.0, 1)),
            detail = json_build_object('class', asked.class, 'pending', asked.pending, 'hard', asked.hard,
                                       'oldest_ms', (extract(epoch from clock_timestamp() - asked.oldest_at) * 1000)::bigint,
                                       'retry_after_ms', asked.retry_after_ms)::text,
            hint = 'roll back and retry the whole transaction after retry_after_ms';
    end if;
    if asked.delay_ms > 0 then
        perform pg_sleep(asked.delay_ms / 1000.0);
    end if;
end
$$;

-- Roles that could write events before this table existed still can.
do $$
declare
    grantee text;
begin
    for grantee in
        select distinct case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
        from pg_class c
        cross join lateral aclexplode(c.relacl) a
        where c.oid = '{events_asleep}'::regclass and a.privilege_type = 'SELECT' and a.grantee <> c.relowner
    loop
        execute format('grant select on {events_pressure}, {events_seq} to %s', grantee);
    end loop;
end
$$;
