-- The lowest low mark of all lanes; 0 if the low marks are invalid. Reads 256 rows; locks nothing.
select {lowest_mark}
