//! The troubles that relays report, kept short enough for people to read.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const TROUBLES_MAX: usize = 20;
const CHARS_MAX: usize = 500;

/// Something that keeps a relay from delivering.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    pub kind: TroubleKind,
    /// The sink, the destination (`sink/stream topic[partition]`), or the stalled relay.
    pub what: String,
    pub why: String,
    /// By the relay's clock, to the second.
    pub since: Timestamp,
    /// How many events are lost. Only for a loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TroubleKind {
    /// A sink is away.
    Sink,
    /// A stream, topic or partition accepts nothing.
    Destination,
    /// A relay makes no progress.
    Stall,
    /// Delivered events are gone from a sink.
    Loss,
}

impl TroubleKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sink => "sink",
            Self::Destination => "destination",
            Self::Stall => "stall",
            Self::Loss => "loss",
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, why, since, .. } = self;
        match self.kind {
            TroubleKind::Sink => write!(f, "the sink {what} has been away since {since}: {why}"),
            TroubleKind::Destination => write!(f, "{what} has been paused since {since}: {why}"),
            TroubleKind::Stall => write!(f, "{what} has been stalled since {since}: {why}"),
            TroubleKind::Loss => write!(f, "the sink {what} has lost events, noticed at {since}: {why}"),
        }
    }
}

/// The first troubles. Long texts are cut, and characters that would break a line or a database text are removed.
pub fn kept(troubles: &[Trouble]) -> Vec<Trouble> {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let line = |line: &str| line.chars().take(CHARS_MAX).map(plain).collect();
    let kept = troubles.iter().take(TROUBLES_MAX).map(|trouble| Trouble {
        what: line(&trouble.what),
        why: line(&trouble.why),
        ..trouble.clone()
    });
    kept.collect()
}

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
pub(crate) fn to_json(troubles: &[Trouble]) -> String {
    serde_json::to_string(&kept(troubles)).unwrap_or_default()
}

/// Returns no troubles if the value can't be parsed: they are only for people.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
pub(crate) fn from_json(json: &str) -> Vec<Trouble> {
    serde_json::from_str(json).unwrap_or_default()
}
