case when {of}.payload_bytes <= {payload_max} then {of}.payload_bytes else 0 end
               + case when {of}.header_bytes <= {headers_max} then {of}.header_bytes else 0 end
               + case when {of}.name_bytes <= {names_max} then {of}.name_bytes else 0 end