-- Removes a record if it has the given version. Returns a row if it was removed. The primary key serves it; locks
-- the record.
-- $1 space  $2 name  $3 place  $4 version
delete from {events_records} where space = $1 and name = $2 and place = $3 and version = $4 returning 1
