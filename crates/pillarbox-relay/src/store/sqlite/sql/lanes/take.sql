-- Takes lanes that nobody holds. 256 rows: a scan. The write lock makes it one relay's turn.
update {events_lanes}
set owner = ?1, epoch = epoch + 1, lease_until = ?3
where lane in (
    select lane from {events_lanes} where owner is null or lease_until <= ?2 order by lane limit ?4
)
returning lane, epoch, low_mark
