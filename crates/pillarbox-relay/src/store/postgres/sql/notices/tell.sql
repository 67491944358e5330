-- Writes a notice down with a delivery for each channel, unless another relay told this fingerprint meanwhile. Primary keys
-- find everything; locks the fingerprint's row.
-- $1 fingerprint  $2 notices before  $3 state  $4 count  $5 last death in microseconds  $6 about  $7 id  $8 body
-- $9 channels
with told as (
    insert into {events_notices} as t (fingerprint, n, state, count, last_died_at, told_at, about)
    values ($1, $2 + 1, $3, $4, timestamptz 'epoch' + $5 * interval '1 microsecond', clock_timestamp(), $6)
    on conflict (fingerprint) do update
    set n = excluded.n, state = excluded.state, count = excluded.count, last_died_at = excluded.last_died_at,
        told_at = excluded.told_at, about = excluded.about
    where t.n = $2
    returning t.n
),
sends as (
    insert into {events_notice_sends} (channel, fingerprint, n, id, body, made_at, due_at)
    select c.channel, $1, told.n, $7, $8, clock_timestamp(), clock_timestamp()
    from told, unnest($9::text[]) as c (channel)
    on conflict (channel, fingerprint, n) do nothing
)
select count(*) from told
