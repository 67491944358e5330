-- Open dead letters by fingerprint, with when people were told. The index of open ones serves it, from end to end, and the
-- notices' primary key; locks nothing.
-- $1 to $8: the filter
select d.fingerprint,
       (array_agg(d.reason order by d.seq desc))[1],
       (array_agg(d.sink order by d.seq desc))[1],
       (array_agg(d.error order by d.seq desc))[1],
       count(*),
       count(distinct d.key),
       count(distinct d.topic),
       (extract(epoch from min(d.died_at)) * 1000000)::bigint,
       (extract(epoch from max(d.died_at)) * 1000000)::bigint,
       (select (extract(epoch from t.told_at) * 1000000)::bigint
        from {events_notices} t
        where t.fingerprint = d.fingerprint and t.state = 'open')
from {dead} d
where d.state = 'open' and {filter}
group by d.fingerprint
order by count(*) desc, d.fingerprint
limit 1000
