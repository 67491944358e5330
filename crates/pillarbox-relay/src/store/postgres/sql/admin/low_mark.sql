-- The lowest low mark of all lanes; 0 where the low marks mean nothing any more. Reads 256 rows; locks nothing.
select {lowest_mark}
