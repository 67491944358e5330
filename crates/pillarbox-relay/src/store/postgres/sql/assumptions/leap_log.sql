-- Continues the event log at a position that is certainly above everything that was ever handed out: a hundred
-- thousand for each second since 1970. A void row stands for all positions between.
-- Primary keys serve it; the caller has locked the table.
-- $1 the latest position that readers have seen
with ended as materialized (
    select greatest(
        (select max(position) from {events_log}),
        (select cast(value as bigint) from {events_records} where space = 'event_log' and name = 'expired' and place = 0),
        0
    ) as last
),
next as materialized (
    select e.last,
           setval(
               '{events_log_position}',
               greatest(e.last + 1, $1::bigint + 1, s.last_value + 1, (extract(epoch from clock_timestamp()) * 100000)::bigint)
           ) as position
    from ended e
    cross join {events_log_position} s
)
insert into {events_log} (position, status, at, seq)
select position, 'void', clock_timestamp(), last + 1 from next
