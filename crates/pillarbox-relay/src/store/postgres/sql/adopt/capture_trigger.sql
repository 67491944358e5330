create or replace trigger {index_capture} after insert on {adopted}
    for each row when ({pending}) execute function {events_capture}();
