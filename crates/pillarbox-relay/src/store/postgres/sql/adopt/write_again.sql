-- Tries once more to bring those rows up to date. The trigger notes those that are refused again.
with again as (
    delete from {events_unwritten} returning seq
)
update {events} e set status = e.status from again where e.seq = again.seq
