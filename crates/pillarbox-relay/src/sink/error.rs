//! What can go wrong at a sink. [`crate::verdict`] decides what it means.

use std::time::Duration;

use thiserror::Error;

use crate::tls::PemError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SinkErrorKind {
    /// Not connected, connection refused or broken.
    Unreachable,
    /// Connected, but the destination accepts nothing now: no responders, no leader, no quorum, shutting down.
    Unavailable,
    /// No answer in time.
    Timeout,
    /// The destination has no room now: a full stream, a full disk, a rate limit.
    Full,
    /// The relay's user has no permission to write to the destination.
    NotGranted,
    /// The other side refused this event for now. The reason may be the event itself.
    Busy,
    /// Refused, and it is not clear whether the event or the destination is the reason: an HTTP receiver that answers
    /// 500. It is the event if the destination accepted a later event of the same batch.
    Unclear,
    /// This event can't be sent as it is: a bad subject, a bad header.
    Invalid,
    /// Larger than the other side accepts.
    TooLarge,
    /// The other side refused this event permanently.
    Refused,
    /// A stream or topic that the configuration names is missing or differs.
    MissingStream,
    /// The credentials or the settings of the connection are wrong.
    Misconfigured,
}

impl SinkErrorKind {
    /// All but `Misconfigured`, which ends the relay.
    pub(crate) const ALL: [Self; 11] = [
        Self::Unreachable,
        Self::Unavailable,
        Self::Timeout,
        Self::Full,
        Self::NotGranted,
        Self::Busy,
        Self::Unclear,
        Self::Invalid,
        Self::TooLarge,
        Self::Refused,
        Self::MissingStream,
    ];

    /// Whether the event may be the reason, although the destination may be it as well. A gateway says that its backend
    /// is unavailable also if the backend fails at this event.
    pub(crate) fn may_be_the_event(self) -> bool {
        matches!(self, Self::Timeout | Self::Unclear | Self::Unavailable)
    }

    /// Its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Full => "full",
            Self::NotGranted => "not_granted",
            Self::Busy => "busy",
            Self::Unclear => "unclear",
            Self::Invalid => "invalid",
            Self::TooLarge => "too_large",
            Self::Refused => "refused",
            Self::MissingStream => "missing_stream",
            Self::Misconfigured => "misconfigured",
        }
    }
}

/// An operator reads this text: what happened, and what to do. It never contains a secret or a payload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct SinkError {
    pub kind: SinkErrorKind,
    pub message: String,
    /// The event may have arrived, because the answer was lost.
    pub in_doubt: bool,
    /// The other side wants no event before this time has passed. If its destination is paused, the engine waits for
    /// it, up to a limit.
    pub retry_after: Option<Duration>,
}

impl From<PemError> for SinkError {
    fn from(error: PemError) -> Self {
        Self::new(SinkErrorKind::Misconfigured, error.to_string())
    }
}

impl SinkError {
    pub fn new(kind: SinkErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            in_doubt: false,
            retry_after: None,
        }
    }

    pub fn retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    pub fn in_doubt(mut self) -> Self {
        self.in_doubt = true;
        self
    }
}
