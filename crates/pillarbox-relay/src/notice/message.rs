//! The content of a notice.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    dead::DeadGroup,
    settlement::DeadReason,
    store::{Trouble, TroubleKind},
};

/// Errors are cut to this length in a notice.
const ERROR_CHARS_MAX: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The first events died of a cause.
    #[serde(rename = "pillarbox.dead_letters.opened")]
    Opened,
    /// More events died of it since the last notice.
    #[serde(rename = "pillarbox.dead_letters.more")]
    More,
    /// No dead letter of this cause is open any more.
    #[serde(rename = "pillarbox.dead_letters.recovered")]
    Recovered,
    /// Something keeps relays from delivering.
    #[serde(rename = "pillarbox.trouble.opened")]
    TroubleOpened,
    /// It no longer does.
    #[serde(rename = "pillarbox.trouble.recovered")]
    TroubleRecovered,
    /// A test of the channels.
    #[serde(rename = "pillarbox.test")]
    Test,
}

/// The body of a notice, as every channel delivers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message<A = About> {
    #[serde(rename = "type")]
    pub kind: Kind,
    pub timestamp: Timestamp,
    pub data: A,
}

/// A notice about dead letters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub fingerprint: String,
    pub reason: DeadReason,
    pub sink: Option<String>,
    /// The error of the latest letter.
    pub error: String,
    /// Open letters.
    pub count: u64,
    /// Of these, the letters that died since the last notice.
    pub new: u64,
    pub keys: u64,
    pub topics: u64,
    pub first_died_at: Timestamp,
    pub last_died_at: Timestamp,
    /// Only for a recovery: letters that were replayed, and letters that were discarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded: Option<u64>,
    /// The outbox's table.
    pub outbox: String,
    /// The relay that sends the notice.
    pub relay: String,
    /// The command that shows the letters.
    pub look: String,
}

/// A notice about what keeps relays from delivering.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AboutTrouble {
    pub fingerprint: String,
    pub trouble: TroubleKind,
    /// The sink, the destination, or the stalled relay.
    pub what: String,
    pub why: String,
    pub since: Timestamp,
    /// The number of relays that report it.
    pub relays: u64,
    /// The outbox's table.
    pub outbox: String,
    /// The relay that sends the notice.
    pub relay: String,
    /// The command that shows it.
    pub look: String,
}

impl AboutTrouble {
    pub fn new(fingerprint: &str, trouble: &Trouble, relays: u64, outbox: &str, relay: &str) -> Self {
        Self {
            fingerprint: fingerprint.to_owned(),
            trouble: trouble.kind,
            what: trouble.what.clone(),
            why: trouble.why.chars().take(ERROR_CHARS_MAX).collect(),
            since: trouble.since,
            relays,
            outbox: outbox.to_owned(),
            relay: relay.to_owned(),
            look: "pillarbox status".into(),
        }
    }
}

impl About {
    pub fn group(group: &DeadGroup, new: u64, outbox: &str, relay: &str) -> Self {
        Self {
            fingerprint: group.fingerprint.clone(),
            reason: group.reason,
            sink: group.sink.clone(),
            error: group.error.chars().take(ERROR_CHARS_MAX).collect(),
            count: group.count,
            new,
            keys: group.keys,
            topics: group.topics,
            first_died_at: group.first_died_at,
            last_died_at: group.last_died_at,
            replayed: None,
            discarded: None,
            outbox: outbox.to_owned(),
            relay: relay.to_owned(),
            look: look(&group.fingerprint),
        }
    }

    /// For a notice without a letter: a test, or an earlier notice that can't be read.
    pub fn nothing(fingerprint: &str, error: &str, now: Timestamp, outbox: &str, relay: &str) -> Self {
        Self {
            fingerprint: fingerprint.to_owned(),
            reason: DeadReason::PermanentFailure,
            sink: None,
            error: error.to_owned(),
            count: 0,
            new: 0,
            keys: 0,
            topics: 0,
            first_died_at: now,
            last_died_at: now,
            replayed: None,
            discarded: None,
            outbox: outbox.to_owned(),
            relay: relay.to_owned(),
            look: look(fingerprint),
        }
    }
}

impl Message {
    /// A notice for testing the channels.
    pub fn test(now: Timestamp, outbox: &str, relay: &str) -> Self {
        Self {
            kind: Kind::Test,
            timestamp: now,
            data: About::nothing(
                "000000000000",
                "this is a test: no event died",
                now,
                outbox,
                relay,
            ),
        }
    }
}

impl<A: Serialize> Message<A> {
    pub fn body(&self) -> String {
        // Strings, numbers and times: writing them as JSON can't fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn look(fingerprint: &str) -> String {
    format!("pillarbox dead list --letters --fingerprint {fingerprint}")
}
