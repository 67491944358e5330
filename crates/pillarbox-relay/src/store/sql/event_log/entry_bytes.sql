512 + coalesce(octet_length(l.payload), 0) + coalesce(octet_length({text l.headers}), 0) + coalesce(octet_length({text l.failures}), 0)
