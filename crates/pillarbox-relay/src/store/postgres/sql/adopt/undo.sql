drop trigger if exists {index_capture} on {adopted};
drop function if exists {events_capture}() cascade;
drop function if exists {events_write_back}() cascade;
drop function if exists {events_as_json}(text);
drop function if exists {events_as_jsonb}(text);
drop table if exists {events_backlog}, {events_unwritten};
