//! The content of a notice.

use jiff::Timestamp;
use pillarbox::EventId;
use serde::{Deserialize, Serialize};

use crate::{
    dead::{DeadDetails, DeadGroup},
    settlement::DeadReason,
    store::{Trouble, TroubleKind},
};

/// Errors are cut to this length in a notice.
const ERROR_CHARS_MAX: usize = 1_000;
/// Names of a sample letter are cut to this length. The library allows less, but any program can write rows.
const NAME_CHARS_MAX: usize = 500;

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
    /// One of the letters. A recovery has the one of the notice before. Missing in a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
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

/// One letter of a cause, by name. It has nothing of the payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub event_id: EventId,
    pub event_type: String,
    /// `None` if the event's row is gone or can't be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate_id: Option<String>,
}

impl Sample {
    pub fn of(details: &DeadDetails) -> Self {
        let event = details.event.as_ref();
        Self {
            event_id: details.letter.id.clone(),
            event_type: cut(&details.letter.event_type, NAME_CHARS_MAX),
            aggregate_type: event.map(|event| cut(&event.aggregate_type, NAME_CHARS_MAX)),
            aggregate_id: event.map(|event| cut(&event.aggregate_id, NAME_CHARS_MAX)),
        }
    }
}

fn cut(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
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
    /// How many events are lost, as far as relays found them. Only for a loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
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
            why: cut(&trouble.why, ERROR_CHARS_MAX),
            since: trouble.since,
            events: trouble.events,
            relays,
            outbox: outbox.to_owned(),
            relay: relay.to_owned(),
            look: "pillarbox status".into(),
        }
    }
}

impl About {
    pub fn group(group: &DeadGroup, sample: Option<Sample>, outbox: &str, relay: &str) -> Self {
        Self {
            fingerprint: group.fingerprint.clone(),
            reason: group.reason,
            sink: group.sink.clone(),
            error: cut(&group.error, ERROR_CHARS_MAX),
            count: group.count,
            new: group.count,
            keys: group.keys,
            topics: group.topics,
            first_died_at: group.first_died_at,
            last_died_at: group.last_died_at,
            sample,
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
            sample: None,
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
