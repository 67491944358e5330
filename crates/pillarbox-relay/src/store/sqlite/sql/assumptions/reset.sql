-- The low marks mean nothing any more: every relay starts over, from the first seq on. The epochs rise, so that nothing of the
-- time before is settled. What the side table knows of events that are not there, or of new ones with the seq of an old one,
-- goes; these are pending, and are read again.
update {events_lanes} set epoch = epoch + 1, low_mark = 0;
delete from {events_parked}
where seq not in (select e.seq from {events} as e where e.seq = {events_parked}.seq and e.status not in ('pending', 'published'));
