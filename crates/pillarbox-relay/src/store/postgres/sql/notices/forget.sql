-- Drops what is over and was told long ago, and deliveries as old. Reads the whole of two small tables; locks what goes.
-- $1 age in microseconds
with sends as (
    delete from {events_notice_sends} where made_at < clock_timestamp() - $1 * interval '1 microsecond'
)
delete from {events_notices}
where state = 'recovered' and told_at < clock_timestamp() - $1 * interval '1 microsecond'
