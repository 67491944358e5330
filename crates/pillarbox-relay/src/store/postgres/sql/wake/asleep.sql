-- Sets the second until which a relay sleeps and must be woken; 0 if it no longer sleeps. Changes the sequence in
-- place, at once.
-- $1 seconds from now on, or null
select setval('{events_asleep}', coalesce((extract(epoch from now()) + $1)::bigint, 0))
