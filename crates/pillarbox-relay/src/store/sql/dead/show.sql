-- One dead letter with its failures. The index on ids serves it; locks nothing.
-- $1 id
select {letter}, {text d.failures}
from {dead} as d
where d.id = $1
