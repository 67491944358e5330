-- Removes the relay and frees its lanes. Reads 256 rows; locks those of the relay.
-- $1 relay
with mine as materialized (
    select l.lane from {events_lanes} l where l.owner = $1 order by l.lane for update
),
freed as (
    update {events_lanes} l set owner = null from mine where l.lane = mine.lane
)
delete from {events_relays} where id = $1
