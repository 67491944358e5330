{ids}
and ($2::text is null or d.fingerprint = $2)
and ($3::text is null or d.topic = $3)
and ($4::text is null or starts_with(d.topic, $4))
and ($5::text is null or d.event_type = $5)
and ($6::text is null or d.key = $6)
and ($7::text is null or d.reason = $7)
and ($8::bigint is null or d.died_at >= timestamptz 'epoch' + $8 * interval '1 microsecond')
