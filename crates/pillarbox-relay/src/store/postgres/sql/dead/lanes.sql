-- Blocks settlements of these lanes until this transaction ends, because both change which event of a key is first.
-- The primary key serves it; locks the lanes in their order, as all statements do.
-- $1 lanes
select l.lane from {events_lanes} l where l.lane = any($1::smallint[]) order by l.lane for update
