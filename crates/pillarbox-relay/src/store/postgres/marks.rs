//! Finds the seq up to which every seq is decided.

use std::time::Duration;

use tokio::time::Instant;

use super::snapshot::Snapshot;
use crate::event::Seq;

/// How often a new pair is taken. Each one uses up an xid.
const MARK_INTERVAL: Duration = Duration::from_secs(1);

/// Pairs of a seq and an xid X. A transaction that took a seq up to this one has an xid below X. A transaction
/// whose xid is above X took its seqs later. So once no transaction below X is in progress, every seq up to this
/// one is decided, and rows of transactions above X lie above it.
#[derive(Default)]
pub(super) struct Marks {
    oldest: Option<Mark>,
    newest: Option<Mark>,
    taken_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) seq: Seq,
    pub(super) xid: u64,
}

impl Marks {
    /// Only if a seq was taken since then: an idle outbox uses no xids.
    pub(super) fn are_worth_taking(&self, last_taken: Seq) -> bool {
        self.newest.is_none_or(|mark| mark.seq < last_taken)
            && self.taken_at.is_none_or(|at| at.elapsed() >= MARK_INTERVAL)
    }

    pub(super) fn add(&mut self, mark: Mark) {
        self.oldest.get_or_insert(mark);
        self.newest = Some(mark);
        self.taken_at = Some(Instant::now());
    }

    /// The seq up to which every seq was decided when the snapshot was taken.
    pub(super) fn decided_in(&self, snapshot: &Snapshot) -> Option<Seq> {
        [self.newest, self.oldest]
            .into_iter()
            .flatten()
            .find(|mark| mark.xid <= snapshot.xmin)
            .map(|mark| mark.seq)
    }

    /// Drops the oldest pair once a snapshot beyond it has been read completely. The newest pair stays: it still
    /// tells what lies above it.
    pub(super) fn drop_up_to(&mut self, snapshot: &Snapshot) {
        if self.oldest.is_some_and(|mark| mark.xid <= snapshot.xmin) {
            self.oldest = self.newest.filter(|mark| mark.xid > snapshot.xmin);
        }
    }

    /// A seq below all seqs that transactions from this xid on have taken.
    pub(super) fn below(&self, xid: u64) -> Option<Seq> {
        [self.newest, self.oldest]
            .into_iter()
            .flatten()
            .find(|mark| mark.xid < xid)
            .map(|mark| mark.seq)
    }
}
