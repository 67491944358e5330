-- Events whose rows could not be brought up to date, and why.
create table if not exists {events_unwritten} (
    seq    bigint primary key,
    error  text not null,
    at     timestamptz not null default now()
);

-- Brings the rows of the adopted table up to date with their events, in the transaction of the relay that settles them. A
-- row that already says so is not written. What the table refuses, or somebody has locked for long, must not stop delivery:
-- then the rows are written one by one, and those that can't be are noted.
create or replace function {events_write_back}() returns trigger language plpgsql security definer set search_path = {path}
set lock_timeout = '5s' as $write_back$
declare
    one {events};
begin
    begin
        {for_all}
        -- What is deferred would fail at the commit, where nothing can be done about it.
        set constraints all immediate;
        return null;
    exception
        when transaction_rollback or insufficient_resources or operator_intervention or system_error then raise;
        when others or assert_failure then null;
    end;
    perform set_config('lock_timeout', '100ms', true);
    for one in select * from settled loop
        begin
            {for_one}
            set constraints all immediate;
        exception
            when transaction_rollback or insufficient_resources or operator_intervention or system_error then raise;
            when others or assert_failure then
            insert into {events_unwritten} (seq, error) values (one.seq, sqlerrm)
            on conflict (seq) do update set error = excluded.error, at = excluded.at;
        end;
    end loop;
    return null;
end $write_back$;
create or replace trigger {index_write_back} after update on {events}
    referencing new table as settled for each statement execute function {events_write_back}();
