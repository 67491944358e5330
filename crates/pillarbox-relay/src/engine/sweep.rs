//! Looks for events that discovery should have returned and did not. There should be none.

use std::{collections::HashSet, sync::Arc};

use crate::{
    event::{Seq, StoredEvent},
    store::{HeldLane, PageLimit, Store, StoreError},
};

/// Finds events up to `decided` that are pending and not in `known`. Discovery had returned everything up to `decided`
/// before, so it missed such an event. The sweep reads from the low marks, so its cost depends on the number of
/// unsettled events.
pub(super) async fn missed(
    store: Arc<dyn Store>,
    lanes: &[HeldLane],
    limit: PageLimit,
    decided: Seq,
    known: HashSet<Seq>,
) -> Result<Vec<StoredEvent>, StoreError> {
    let mut reader = store.reader(lanes);
    let mut missed = Vec::new();
    loop {
        let page = reader.next(limit).await?;
        let past = page.events.last().is_some_and(|event| event.seq > decided);
        // A delayed event is pending in the store and waits in the side table.
        missed.extend(page.events.into_iter().filter(|event| {
            event.seq <= decided && event.event.available_at.is_none() && !known.contains(&event.seq)
        }));
        if past || !page.more || missed.len() >= limit.events {
            return Ok(missed);
        }
    }
}
