//! An event in the window, and its result.

use std::{sync::Arc, time::Duration};

use pillarbox::lane::key_hash;

use super::key::KeyId;
use crate::{
    engine::destinations::DestinationId,
    envelope::Envelope,
    event::{Seq, StoredEvent},
    route::AfterDeath,
    settlement::{Dead, DeadReason, FailedTry, Parked, Settlement},
};

/// What the event's route says.
#[derive(Debug, Clone, Default)]
pub(in crate::engine) struct Target {
    /// Index of the sink.
    pub(in crate::engine) sink: usize,
    pub(in crate::engine) destination: DestinationId,
    pub(in crate::engine) stream: Option<Arc<str>>,
    pub(in crate::engine) envelope: Envelope,
    pub(in crate::engine) after_death: AfterDeath,
    pub(in crate::engine) event_log: bool,
}

/// An event in the window.
#[derive(Debug, Clone)]
pub(in crate::engine) struct Entry {
    pub(in crate::engine) event: Arc<StoredEvent>,
    pub(in crate::engine) target: Target,
    /// The last attempt may have failed because of the event, and was not charged.
    pub(in crate::engine) suspect: bool,
    /// From the side table, where it waited for its `available_at`. It does not hold its key.
    pub(super) delayed: bool,
    pub(super) key: KeyId,
    /// The page it came with. `None` if it came from the side table.
    pub(super) page: Option<u64>,
}

/// The result of an event that was in flight.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::engine) enum Resolution {
    Delivered,
    Retry {
        failure: FailedTry,
        retry_in: Duration,
    },
    Dead {
        reason: DeadReason,
        failure: FailedTry,
    },
    /// Not charged. It is sent again, before the later events of its key.
    Returned,
}

/// What leaves the window when the settlement is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receipt {
    pub(super) page: Option<u64>,
    pub(super) seq: Seq,
    pub(super) key: KeyId,
    pub(super) bytes: usize,
    /// Whether the event moves to the side table and blocks its key.
    pub(super) joins: bool,
}

/// A settlement that is being written to the store.
#[derive(Debug, Default)]
pub(in crate::engine) struct Settling {
    pub(in crate::engine) settlement: Settlement,
    pub(super) receipts: Vec<Receipt>,
    /// The sink of each event that the event log records, as an index.
    pub(in crate::engine) logged_sinks: Vec<usize>,
}

impl Entry {
    pub(in crate::engine) fn new(event: StoredEvent, target: Target, page: Option<u64>) -> Self {
        let key = (event.lane, key_hash(event.event.key()));
        Self {
            event: Arc::new(event),
            target,
            suspect: false,
            delayed: false,
            key,
            page,
        }
    }

    pub(super) fn is_parked(&self) -> bool {
        self.page.is_none()
    }

    /// Whether it is a failing or held event of the side table. It can leave the window without a write.
    pub(super) fn is_parked_head_or_held(&self) -> bool {
        self.is_parked() && !self.delayed
    }

    pub(super) fn receipt(&self, joins: bool) -> Receipt {
        Receipt {
            page: self.page,
            seq: self.event.seq,
            key: self.key,
            bytes: self.event.bytes(),
            joins,
        }
    }

    /// The record of its death in this attempt.
    pub(super) fn died(&self, reason: DeadReason, failure: FailedTry) -> Dead {
        let tells_key = self.is_parked() || self.target.after_death != AfterDeath::Skip;
        Dead {
            seq: self.event.seq,
            lane: self.event.lane,
            subject: Some((&self.event.event).into()),
            key: tells_key.then(|| self.event.event.key().to_owned()),
            after: self.target.after_death,
            attempts: self.event.attempts + 1,
            reason,
            failure,
            tried: true,
            logged: self.target.event_log,
        }
    }

    pub(super) fn to_parked(&self) -> Parked {
        Parked {
            seq: self.event.seq,
            lane: self.event.lane,
            key: self.event.event.key().to_owned(),
        }
    }
}
