-- Records an action on letters, with its actor and reason. Only appends.
-- $1 seqs  $2 action  $3 by  $4 why
insert into {events_recoveries} (seq, action, at, "by", why)
select d.seq, $2, {now}, $3, $4 from {dead} as d where {in d.seq $1}
