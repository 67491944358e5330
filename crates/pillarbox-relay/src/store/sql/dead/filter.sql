{ids}
  and ($2 is null or d.fingerprint = $2)
  and ($3 is null or d.topic = $3)
  and ($4 is null or substr(d.topic, 1, length($4)) = $4)
  and ($5 is null or d.event_type = $5)
  and ($6 is null or d.key = $6)
  and ($7 is null or d.reason = $7)
  and ($8 is null or d.died_at >= {time $8})
