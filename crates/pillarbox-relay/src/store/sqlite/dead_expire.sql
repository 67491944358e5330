-- Letters that died long ago go. Walks the index of when they died.
-- ?1 died before  ?2 count
delete from {dead}
where seq in (select d.seq from {dead} as d where d.died_at < ?1 order by d.died_at limit ?2)
returning seq
