-- Dead letters are of no more interest; the events stay dead. Primary keys find everything; locks the rows.
-- $1 seqs  $2 by  $3 why
with letters as (
    update {dead} d set state = 'discarded' where d.seq = any($1::bigint[]) returning d.seq
)
insert into {events_recoveries} (seq, action, by, why) select seq, 'discarded', $2, $3 from letters
