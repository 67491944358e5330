-- One relay at a time changes what the low marks belong to. The primary key serves it; locks the row.
select version from {events_meta} for update
