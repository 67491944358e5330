-- Keeps settlements of these lanes out until this transaction ends, as both change which event of a key goes first. The
-- primary key serves it; locks the lanes in their order, as everybody does.
-- $1 lanes
select l.lane from {events_lanes} l where l.lane = any($1::smallint[]) order by l.lane for update
