-- Takes lanes that no relay holds. Scans 256 rows. The write lock lets one relay at a time do so.
update {events_lanes}
set owner = ?1, epoch = epoch + 1, lease_until = ?3
where lane in (
    select lane from {events_lanes} where owner is null or lease_until <= ?2 order by lane limit ?4
)
returning lane, epoch, low_mark
