//! Actions on any number of dead letters, a piece at a time: no transaction is large, and relays go on between two.

use thiserror::Error;
use uuid::Uuid;

use super::{Actor, DeadFilter, DeadLetters, DeadState, ReplayAs};
use crate::store::StoreError;

const CHUNK: usize = 1_000;
/// Letters of one replay: their ids are kept in memory.
pub const REPLAY_LETTERS_MAX: usize = 1_000_000;

#[derive(Debug, Error)]
pub enum BulkError {
    #[error(
        "more than {REPLAY_LETTERS_MAX} dead letters match: replay them in parts, by topic, fingerprint or time"
    )]
    TooMany,
    /// What was done before it stays done.
    #[error("{error}. {done} letters were done before that; doing the same again does the rest")]
    Store { done: usize, error: StoreError },
}

/// Replays every open letter that matches, oldest first; `told` hears how many are done.
///
/// They are chosen before the first one goes. A replayed event may die again within milliseconds, and its letter, or its
/// copy's, then matches as well: asking the filter again and again would never come to an end.
pub async fn replay_all(
    letters: &dyn DeadLetters,
    filter: &DeadFilter,
    send: ReplayAs,
    actor: &Actor,
    told: &mut (dyn FnMut(usize) + Send),
) -> Result<usize, BulkError> {
    let mut done = 0;
    for ids in chosen(letters, filter).await?.chunks(CHUNK) {
        let some = DeadFilter {
            ids: ids.to_vec(),
            ..filter.clone()
        };
        let replayed = letters.replay(&some, ids.len(), send, actor).await;
        done += replayed.map_err(|error| BulkError::Store { done, error })?;
        told(done);
    }
    Ok(done)
}

/// Discards every open letter that matches; `told` hears how many are done.
pub async fn discard_all(
    letters: &dyn DeadLetters,
    filter: &DeadFilter,
    actor: &Actor,
    told: &mut (dyn FnMut(usize) + Send),
) -> Result<usize, BulkError> {
    let mut done = 0;
    loop {
        let discarded = letters.discard(filter, CHUNK, actor).await;
        let discarded = discarded.map_err(|error| BulkError::Store { done, error })?;
        done += discarded;
        told(done);
        if discarded < CHUNK {
            return Ok(done);
        }
    }
}

/// The ids of the open letters that match, oldest first.
async fn chosen(letters: &dyn DeadLetters, filter: &DeadFilter) -> Result<Vec<Uuid>, BulkError> {
    let mut ids = Vec::new();
    let mut before = None;
    loop {
        let page = letters.list(filter, Some(DeadState::Open), before, CHUNK).await;
        let page = page.map_err(|error| BulkError::Store { done: 0, error })?;
        ids.extend(page.iter().map(|letter| letter.id));
        if ids.len() > REPLAY_LETTERS_MAX {
            return Err(BulkError::TooMany);
        }
        before = page.last().map(|letter| letter.seq);
        if page.len() < CHUNK {
            ids.reverse();
            return Ok(ids);
        }
    }
}
