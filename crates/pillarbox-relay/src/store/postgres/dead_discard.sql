-- The oldest open dead letters that match are of no more interest; the events stay dead. The index of open ones serves
-- it in its order; locks the letters.
-- $1 to $8: the filter  $9 count  $10 by  $11 why
with chosen as materialized (
    select d.seq from {dead} d where d.state = 'open' and {filter} order by d.seq limit $9 for update
),
letters as (
    update {dead} d set state = 'discarded' from chosen where d.seq = chosen.seq returning d.seq
),
told as (
    insert into {events_recoveries} (seq, action, by, why) select seq, 'discarded', $10, $11 from letters
)
select count(*) from letters
