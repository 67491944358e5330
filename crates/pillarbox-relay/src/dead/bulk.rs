//! Actions on any number of dead letters, in chunks: transactions stay small, and relays continue between two of
//! them.

use pillarbox::EventId;
use thiserror::Error;

use super::{Actor, DeadFilter, DeadLetters, DeadState, ReplayAs};
use crate::store::StoreError;

const CHUNK: usize = 1_000;
/// The most letters for one action: their ids are kept in memory.
pub const BULK_LETTERS_MAX: usize = 1_000_000;

#[derive(Debug, Error)]
pub enum BulkError {
    #[error(
        "more than {BULK_LETTERS_MAX} dead letters match: narrow the filter by topic, fingerprint or time"
    )]
    TooMany,
    /// The chunks before the error stay done.
    #[error("{error}. {done} letters were done before that; run the same action again for the rest")]
    Store { done: usize, error: StoreError },
}

/// Replays every open letter that matches, oldest first. `told` is called with the number done so far.
///
/// All letters are selected before the first one is replayed. A replayed event may die again within milliseconds,
/// and its letter, or its copy's letter, then matches again. Applying the filter again after each chunk might never
/// end.
pub async fn replay_all(
    letters: &dyn DeadLetters,
    filter: &DeadFilter,
    send: ReplayAs,
    actor: &Actor,
    told: &mut (dyn FnMut(usize) + Send),
) -> Result<usize, BulkError> {
    let mut done = 0;
    for some in chosen(letters, filter).await? {
        let replayed = letters.replay(&some, some.ids.len(), send, actor).await;
        done += replayed.map_err(|error| BulkError::Store { done, error })?;
        told(done);
    }
    Ok(done)
}

/// Discards every open letter that matches. All letters are selected before the first one is discarded, because
/// nobody has seen those that die meanwhile. `told` is called with the number done so far.
pub async fn discard_all(
    letters: &dyn DeadLetters,
    filter: &DeadFilter,
    actor: &Actor,
    told: &mut (dyn FnMut(usize) + Send),
) -> Result<usize, BulkError> {
    let mut done = 0;
    for some in chosen(letters, filter).await? {
        let discarded = letters.discard(&some, some.ids.len(), actor).await;
        done += discarded.map_err(|error| BulkError::Store { done, error })?;
        told(done);
    }
    Ok(done)
}

/// The open letters that match, oldest first, as one filter for each chunk.
async fn chosen(letters: &dyn DeadLetters, filter: &DeadFilter) -> Result<Vec<DeadFilter>, BulkError> {
    let mut ids = ids(letters, filter).await?;
    ids.reverse();
    let pieces = ids.chunks(CHUNK).map(|ids| DeadFilter {
        ids: ids.to_vec(),
        ..filter.clone()
    });
    Ok(pieces.collect())
}

/// The ids of the open letters that match, the latest first.
async fn ids(letters: &dyn DeadLetters, filter: &DeadFilter) -> Result<Vec<EventId>, BulkError> {
    let mut ids = Vec::new();
    let mut before = None;
    loop {
        let page = letters.list(filter, Some(DeadState::Open), before, CHUNK).await;
        let page = page.map_err(|error| BulkError::Store { done: 0, error })?;
        ids.extend(page.iter().map(|letter| letter.id.clone()));
        if ids.len() > BULK_LETTERS_MAX {
            return Err(BulkError::TooMany);
        }
        before = page.last().map(|letter| letter.seq);
        if page.len() < CHUNK {
            return Ok(ids);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Mutex, time::Duration};

    use async_trait::async_trait;
    use jiff::Timestamp;

    use super::*;
    use crate::{
        dead::{CauseResult, DeadDetails, DeadGroup, DeadLetter, OpenCause, Touched},
        event::Seq,
        settlement::DeadReason,
    };

    /// Letters that are open again right after each action, while new ones die. Counts how often each was touched.
    struct Hopeless(Mutex<BTreeMap<Seq, u32>>);

    impl Hopeless {
        fn touch(&self, filter: &DeadFilter, limit: usize) -> usize {
            let mut letters = self.0.lock().unwrap();
            let wanted = |seq: Seq| filter.ids.is_empty() || filter.ids.contains(&letter(seq).id);
            let mut count = 0;
            for (seq, times) in letters.iter_mut().filter(|(seq, _)| wanted(**seq)).take(limit) {
                *times += 1;
                assert_eq!(*times, 1, "{seq} was touched again");
                count += 1;
            }
            let next = letters.len() as Seq;
            letters.insert(next, 0);
            count
        }
    }

    fn letter(seq: Seq) -> DeadLetter {
        DeadLetter {
            id: EventId::from(format!("event {seq}")),
            seq,
            topic: "t".into(),
            key: "k".into(),
            event_type: "T".into(),
            reason: DeadReason::PermanentFailure,
            error: "no".into(),
            attempts: 1,
            sink: None,
            relay: String::new(),
            fingerprint: String::new(),
            died_at: Timestamp::UNIX_EPOCH,
            state: DeadState::Open,
            blocks_key: false,
        }
    }

    #[async_trait]
    impl DeadLetters for Hopeless {
        async fn list(
            &self,
            _: &DeadFilter,
            _: Option<DeadState>,
            before: Option<Seq>,
            count: usize,
        ) -> Result<Vec<DeadLetter>, StoreError> {
            let letters = self.0.lock().unwrap();
            let below = letters.range(..before.unwrap_or(Seq::MAX));
            Ok(below.rev().take(count).map(|(&seq, _)| letter(seq)).collect())
        }

        async fn replay(
            &self,
            filter: &DeadFilter,
            limit: usize,
            _: ReplayAs,
            _: &Actor,
        ) -> Result<usize, StoreError> {
            Ok(self.touch(filter, limit))
        }

        async fn groups(&self, _: &DeadFilter) -> Result<Vec<DeadGroup>, StoreError> {
            unreachable!()
        }
        async fn show(&self, _: &EventId) -> Result<Option<DeadDetails>, StoreError> {
            unreachable!()
        }
        async fn touched(&self, _: &DeadFilter) -> Result<Touched, StoreError> {
            unreachable!()
        }
        async fn causes(&self) -> Result<Vec<OpenCause>, StoreError> {
            unreachable!()
        }
        async fn outcome(&self, _: &str, _: Timestamp) -> Result<CauseResult, StoreError> {
            unreachable!()
        }
        async fn replayable(
            &self,
            _: &DeadFilter,
            _: Duration,
            _: u32,
            _: usize,
        ) -> Result<Vec<EventId>, StoreError> {
            unreachable!()
        }
        async fn discard(&self, filter: &DeadFilter, limit: usize, _: &Actor) -> Result<usize, StoreError> {
            Ok(self.touch(filter, limit))
        }
        async fn expire(&self, _: Duration, _: usize) -> Result<usize, StoreError> {
            unreachable!()
        }
    }

    #[tokio::test]
    async fn each_letter_is_processed_once_and_new_ones_are_left() {
        let (all, actor) = (
            DeadFilter::default(),
            Actor {
                by: "x".into(),
                why: None,
            },
        );
        for count in [0, 1, CHUNK, 2 * CHUNK + 100] {
            for discard in [false, true] {
                let letters = Hopeless(Mutex::new((0..count as Seq).map(|seq| (seq, 0)).collect()));
                let done = match discard {
                    true => discard_all(&letters, &all, &actor, &mut |_| ()).await,
                    false => replay_all(&letters, &all, ReplayAs::Same, &actor, &mut |_| ()).await,
                };
                assert_eq!(done.unwrap(), count);
                for (seq, times) in letters.0.lock().unwrap().iter() {
                    assert_eq!(*times == 1, *seq < count as Seq, "{seq}");
                }
            }
        }
    }
}
