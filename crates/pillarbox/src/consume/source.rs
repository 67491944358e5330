//! The messages between the engine and a broker's tasks.

use std::{pin::Pin, sync::Arc};

use tokio::sync::{mpsc, oneshot, watch};

use super::{ConsumeError, letter::Letter, message::Message};

/// The engine's side of a broker. The room that messages reserve bounds the number in `incoming`.
pub(crate) struct Source {
    pub(crate) incoming: mpsc::UnboundedReceiver<Incoming>,
    pub(crate) notes: mpsc::UnboundedSender<Note>,
    pub(crate) letters: Arc<dyn Letters>,
    /// Messages at the broker that are not read yet.
    pub(crate) waiting: watch::Receiver<Option<u64>>,
}

pub(crate) enum Incoming {
    /// The messages of each lane come in order, starting at a position below which everything is done.
    Message(Message),
    /// The lane is assigned to another member now. `quiet` is dropped when none of its messages is running
    /// any more.
    #[cfg_attr(not(feature = "kafka"), allow(dead_code))]
    Revoked {
        lane: u64,
        quiet: std::sync::mpsc::Sender<()>,
    },
    /// No more messages come, for this reason.
    #[cfg_attr(not(feature = "kafka"), allow(dead_code))]
    Ended(ConsumeError),
}

/// A note to the broker's task.
pub(crate) enum Note {
    /// The message was read and handed on. (The reader tells the acknowledging task.)
    #[cfg_attr(not(feature = "nats"), allow(dead_code))]
    Opened {
        position: u64,
        /// Its delivery can't be read, so it has to be acknowledged without one.
        by_hand: bool,
    },
    /// Its effect is committed: it may be acknowledged.
    Done {
        /// A stream has only one lane.
        #[cfg_attr(not(feature = "kafka"), allow(dead_code))]
        lane: u64,
        position: u64,
    },
    /// What follows this place is another stream than before, or comes again. What was read until now must
    /// not be acknowledged there. `settled` is sent when all of that is done.
    #[cfg(feature = "nats")]
    Renewed {
        place: super::nats::Beginning,
        settled: oneshot::Sender<()>,
    },
    /// Nothing more will be done: acknowledge what is done, give the rest back, and report when that is
    /// finished.
    Close { closed: oneshot::Sender<()> },
}

/// Publishes dead letters.
pub(crate) trait Letters: Send + Sync {
    /// `Ok`: the broker has stored it durably.
    fn publish(&self, letter: Letter) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>>;
}
