-- Those of these events that are dead. Seeks by the primary key; takes no lock that a writer minds.
-- ?1: [seq, …]
select e.seq from json_each(?1) as s cross join {events} as e on e.seq = s.value where e.status = 'dead'
