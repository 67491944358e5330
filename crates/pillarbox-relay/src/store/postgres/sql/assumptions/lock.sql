-- Lets one relay at a time change what the low marks belong to. The primary key serves it; locks the row.
select version from {events_meta} for update
