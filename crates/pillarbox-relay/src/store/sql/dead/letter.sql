d.seq, d.id, d.topic, d.key, d.event_type, d.reason, d.error, d.attempts, d.sink, d.relay, d.fingerprint,
       {micros d.died_at}, d.state,
       exists (select 1 from {events_parked} as p where p.seq = d.seq and p.state = 'blocked')
