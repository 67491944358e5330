-- The oldest open dead letters that match are of no more interest; the events stay dead. Walks the index of open ones in
-- its order.
-- ?1 to ?8: the filter  ?9 count
update {dead} set state = 'discarded'
where seq in (
    select d.seq from {dead} as d where d.state = 'open' and {filter} order by d.seq limit ?9
)
returning seq
