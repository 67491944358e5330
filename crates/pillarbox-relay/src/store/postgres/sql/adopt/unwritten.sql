-- How many rows could not be brought up to date, and the latest reason. Reads the few rows there are.
select count(*), (select left(u.error, 300) from {events_unwritten} u order by u.at desc limit 1) from {events_unwritten}
