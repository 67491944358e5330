//! What a notice says.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    dead::DeadGroup,
    settlement::DeadReason,
    store::{Trouble, TroubleKind},
};

/// As much of an error as a notice carries.
const ERROR_CHARS_MAX: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Events began to die of a cause.
    #[serde(rename = "pillarbox.dead_letters.opened")]
    Opened,
    /// More died of it since people were told.
    #[serde(rename = "pillarbox.dead_letters.more")]
    More,
    /// None is dead of it any more.
    #[serde(rename = "pillarbox.dead_letters.recovered")]
    Recovered,
    /// Something keeps relays from delivering.
    #[serde(rename = "pillarbox.trouble.opened")]
    TroubleOpened,
    /// It no longer does.
    #[serde(rename = "pillarbox.trouble.recovered")]
    TroubleRecovered,
    /// Somebody tries whether notices arrive.
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
    /// The latest letter's.
    pub error: String,
    /// Letters open now.
    pub count: u64,
    /// Of these, those that died since the notice before.
    pub new: u64,
    pub keys: u64,
    pub topics: u64,
    pub first_died_at: Timestamp,
    pub last_died_at: Timestamp,
    /// With a recovery: letters whose events were sent again, and letters that were let go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded: Option<u64>,
    /// The outbox's table.
    pub outbox: String,
    /// The relay that tells.
    pub relay: String,
    /// The command that shows the letters.
    pub look: String,
}

/// A notice about what keeps relays from delivering.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AboutTrouble {
    pub fingerprint: String,
    pub trouble: TroubleKind,
    /// The sink, the destination, or the relay that is stalled.
    pub what: String,
    pub why: String,
    pub since: Timestamp,
    /// Relays that report it.
    pub relays: u64,
    /// The outbox's table.
    pub outbox: String,
    /// The relay that tells.
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

    /// About no letter at all: what a test says, and what is left when an earlier notice can't be read.
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
    /// For trying the channels.
    pub fn test(now: Timestamp, outbox: &str, relay: &str) -> Self {
        Self {
            kind: Kind::Test,
            timestamp: now,
            data: About::nothing("000000000000", "this is a test: nothing died", now, outbox, relay),
        }
    }
}

impl<A: Serialize> Message<A> {
    pub fn body(&self) -> String {
        // Texts, numbers and times: writing them as JSON can't fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn look(fingerprint: &str) -> String {
    format!("pillarbox dead list --letters --fingerprint {fingerprint}")
}
