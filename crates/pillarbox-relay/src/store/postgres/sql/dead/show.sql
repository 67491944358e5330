-- One dead letter with its event and everything that was done about it. Indexes on id and on recoveries' seq serve it;
-- locks nothing.
-- $1 id  $2 payload_bytes_max
select d.seq, d.id, d.topic, d.key, d.event_type, d.reason, d.error, d.attempts, d.sink, d.relay, d.fingerprint,
       (extract(epoch from d.died_at) * 1000000)::bigint, d.state,
       exists (select 1 from {events_parked} k where k.seq = d.seq and k.state = 'blocked'),
       d.failures::text,
       (select coalesce(jsonb_agg(jsonb_build_object('action', r.action, 'at', r.at, 'by', r.by, 'why', r.why,
                                                     'new_id', r.new_id) order by r.n), '[]')::text
        from {events_recoveries} r
        where r.seq = d.seq),
       {columns $2}
from {dead} d
-- By its id too: after a truncate another event may have the seq.
left join lateral (
    select e.*,
           {sizes}
    from {events} e
    where e.seq = d.seq and e.id = d.id
) p on true
where d.id = $1
