-- What people were told, the latest first, with the time now. Reads the whole of a small table; locks nothing.
-- $1 count
select (extract(epoch from clock_timestamp()) * 1000000)::bigint, t.fingerprint, t.n, t.state, t.count,
       (extract(epoch from t.last_died_at) * 1000000)::bigint, (extract(epoch from t.told_at) * 1000000)::bigint, t.about
from (select 1) one
left join (select * from {events_notices} order by told_at desc limit $1) t on true
