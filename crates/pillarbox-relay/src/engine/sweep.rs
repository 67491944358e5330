//! Looks for events that discovery should have brought and did not. It should find nothing.

use std::{collections::HashSet, sync::Arc};

use crate::{
    event::{Seq, StoredEvent},
    store::{HeldLane, PageLimit, Store, StoreError},
};

/// What is pending up to `decided` and was not `known` before this looked. Discovery had returned everything up to
/// `decided` by then, so such an event was missed. It reads from the low marks, so it costs what is unsettled.
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
        // A delayed event is pending in the store and waits in its side table.
        missed.extend(page.events.into_iter().filter(|event| {
            event.seq <= decided && event.event.available_at.is_none() && !known.contains(&event.seq)
        }));
        if past || !page.more || missed.len() >= limit.events {
            return Ok(missed);
        }
    }
}
