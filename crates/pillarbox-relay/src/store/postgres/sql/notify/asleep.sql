-- Until which second a relay sleeps and wants waking; 0 when it no longer does. Changes the sequence in place, at once.
-- $1 seconds from now on, or null
select setval('{events_asleep}', coalesce((extract(epoch from now()) + $1)::bigint, 0))
