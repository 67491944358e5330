//! What the engine and a broker's tasks say to each other.

use std::{pin::Pin, sync::Arc};

use tokio::sync::{mpsc, oneshot, watch};

use super::{ConsumeError, letter::Letter, message::Message};

/// The engine's end of a broker. What it takes out of `incoming` is bounded by the room that messages hold.
pub(crate) struct Source {
    pub(crate) incoming: mpsc::UnboundedReceiver<Incoming>,
    pub(crate) notes: mpsc::UnboundedSender<Note>,
    pub(crate) letters: Arc<dyn Letters>,
    /// Messages at the broker that were not taken yet.
    pub(crate) waiting: watch::Receiver<Option<u64>>,
}

pub(crate) enum Incoming {
    /// Of each lane in order, from a place below which everything was done.
    Message(Message),
    /// The lane belongs to another now. `quiet` is dropped when nothing of it is at work any more.
    #[cfg_attr(not(feature = "kafka"), allow(dead_code))]
    Revoked {
        lane: u64,
        quiet: std::sync::mpsc::Sender<()>,
    },
    /// Nothing comes any more, and why.
    #[cfg_attr(not(feature = "kafka"), allow(dead_code))]
    Ended(ConsumeError),
}

/// To the broker's own task.
pub(crate) enum Note {
    /// It was read and handed on. (The reading half tells the acknowledging one.)
    #[cfg_attr(not(feature = "nats"), allow(dead_code))]
    Opened {
        position: u64,
        /// No delivery of it can be read, so none can be waited for to acknowledge it.
        by_hand: bool,
    },
    /// What it caused is committed: it may be acknowledged.
    Done {
        /// A stream has one.
        #[cfg_attr(not(feature = "kafka"), allow(dead_code))]
        lane: u64,
        position: u64,
    },
    /// What is behind this place is another stream than before, or comes again: nothing that was read up to now may be
    /// acknowledged there. `settled` is told when all of that is done.
    #[cfg(feature = "nats")]
    Renewed {
        place: super::nats::Beginning,
        settled: oneshot::Sender<()>,
    },
    /// Nothing more will be done: acknowledge what was, give the rest back, and say when that is through.
    Close { closed: oneshot::Sender<()> },
}

/// Publishes dead letters.
pub(crate) trait Letters: Send + Sync {
    /// `Ok`: it is durable there.
    fn publish(&self, letter: Letter) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>>;
}
