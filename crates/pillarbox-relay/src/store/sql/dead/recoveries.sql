-- The recoveries of a dead letter. The index on recoveries' seq serves it; locks nothing.
-- $1 seq
select r.action, {micros r.at}, r."by", r.why, r.new_id from {events_recoveries} as r where r.seq = $1 order by r.n
