//! Up to where every seq is decided: the pairs that tell.

use std::time::Duration;

use tokio::time::Instant;

use super::snapshot::Snapshot;
use crate::event::Seq;

/// How often it is found out up to where every seq is decided. Each time takes an xid.
const MARK_INTERVAL: Duration = Duration::from_secs(1);

/// Pairs of a seq and an xid X. A transaction that took a seq up to it had an xid below X, and one whose xid is above X
/// took its seqs later. Hence: once no transaction below X is in progress, every seq up to it is decided; and rows of
/// transactions above X lie above it.
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
    /// Only when somebody has taken a seq since: an idle outbox costs no xids.
    pub(super) fn are_worth_taking(&self, last_taken: Seq) -> bool {
        self.newest.is_none_or(|mark| mark.seq < last_taken)
            && self.taken_at.is_none_or(|at| at.elapsed() >= MARK_INTERVAL)
    }

    pub(super) fn add(&mut self, mark: Mark) {
        self.oldest.get_or_insert(mark);
        self.newest = Some(mark);
        self.taken_at = Some(Instant::now());
    }

    /// Up to where every seq was decided when the snapshot was taken.
    pub(super) fn decided_in(&self, snapshot: &Snapshot) -> Option<Seq> {
        [self.newest, self.oldest]
            .into_iter()
            .flatten()
            .find(|mark| mark.xid <= snapshot.xmin)
            .map(|mark| mark.seq)
    }

    /// The oldest has served when a snapshot beyond it has been read whole; the newest still tells what lies above it.
    pub(super) fn drop_up_to(&mut self, snapshot: &Snapshot) {
        if self.oldest.is_some_and(|mark| mark.xid <= snapshot.xmin) {
            self.oldest = self.newest.filter(|mark| mark.xid > snapshot.xmin);
        }
    }

    /// A seq below every one that transactions from this xid on have taken.
    pub(super) fn below(&self, xid: u64) -> Option<Seq> {
        [self.newest, self.oldest]
            .into_iter()
            .flatten()
            .find(|mark| mark.xid < xid)
            .map(|mark| mark.seq)
    }
}
