-- Continues the event log at a position that is certainly above everything that was ever handed out: a hundred thousand for
-- each second since 1970. A void row stands for all positions between. SQLite's counter follows it.
-- ?1 now  ?2 the latest position that the log has or had  ?3 the latest that readers have seen
insert into {events_log} (position, status, at, seq) values (max(?3 + 1, ?1 / 10), 'void', ?1, ?2 + 1)
