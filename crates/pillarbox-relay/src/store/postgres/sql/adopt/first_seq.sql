-- New rows get seqs above those of the rows that are copied later. Never backwards.
select setval('{events_seq}', greatest((select last_value from {events_seq}), {new_rows_from}));
