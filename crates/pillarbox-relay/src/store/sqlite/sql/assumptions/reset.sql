-- Sets the low marks to 0, because they are invalid: every relay starts over from the first seq. The epochs rise,
-- so that nothing from before is settled. Rows of the side table whose event is gone, or whose seq now belongs to a
-- new event, are deleted. Those new events are pending and are read again.
update {events_lanes} set epoch = epoch + 1, low_mark = 0;
delete from {events_parked}
where seq not in (select e.seq from {events} as e where e.seq = {events_parked}.seq and e.status not in ('pending', 'published'));
