//! What can go wrong at a sink. What it means is decided in [`crate::verdict`], not here.

use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SinkErrorKind {
    /// Not connected, connection refused or broken.
    Unreachable,
    /// Connected, but the destination takes nothing now: no responders, no leader, no quorum, shutting down.
    Unavailable,
    /// No answer in time.
    Timeout,
    /// The destination has no room now: a full stream, a full disk, a rate limit.
    Full,
    /// We lack the right to write to the destination.
    NotGranted,
    /// The other side refused this event for now, for a reason that may be the event's own.
    Busy,
    /// This event can't be sent as it is: a bad subject, a bad header.
    Invalid,
    /// Larger than the other side takes.
    TooLarge,
    /// The other side refused this event for good.
    Refused,
    /// A stream or topic that the configuration names is missing or differs.
    MissingStream,
    /// Credentials, or settings of the connection, are wrong.
    Misconfigured,
}

/// Its text is what an operator reads: what happened and what to do. It never holds a secret or a payload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct SinkError {
    pub kind: SinkErrorKind,
    pub message: String,
    /// It may have arrived all the same: the answer was lost.
    pub in_doubt: bool,
}

impl SinkError {
    pub fn new(kind: SinkErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            in_doubt: false,
        }
    }

    pub fn in_doubt(mut self) -> Self {
        self.in_doubt = true;
        self
    }
}
