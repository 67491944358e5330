-- How many relays live, and how many of them come before this one. The table has a row for each relay: a scan.
select count(*), count(*) filter (where id < ?1) from {events_relays}
