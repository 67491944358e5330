//! Looks up delivered events in their streams by sequence, and judges what became of those that are gone.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use async_nats::jetstream::ErrorCode;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use pillarbox::wire;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    connect::Connection,
    streams::{Answer, ApiError, ask},
};
use crate::sink::{
    SinkError, SinkErrorKind,
    audit::{Audited, Fate, Places},
};

/// Copies are looked for behind this many of the events, this far.
const WINDOWS: usize = 10;
const WINDOW: u64 = 4;
/// The server answers with whole messages. The audit ends when it has read this much, or after this time.
const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
const TIME_MAX: Duration = Duration::from_secs(20);

/// Where the server says that it stored an event.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Place {
    stream: String,
    seq: u64,
}

/// A delivered event.
pub(super) struct Receipt {
    pub(super) id: Uuid,
    pub(super) place: Place,
}

impl Place {
    /// From an acknowledgement.
    pub(super) fn read(acknowledgement: &[u8]) -> Option<Self> {
        serde_json::from_slice(acknowledgement).ok()
    }
}

/// What is at a place of a stream.
enum Seen {
    /// A message with this id, if it has one.
    Message(Option<Uuid>),
    Nothing,
    NoStream,
}

/// A stream's limits and its extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    first: u64,
    last: u64,
    /// Its limits remove the oldest messages.
    drops_oldest: bool,
    /// They can also remove a message between others.
    drops_any: bool,
}

pub(super) async fn look_up(connection: &Connection, receipts: Vec<Receipt>) -> Result<Audited, SinkError> {
    let mut audit = Audit {
        connection,
        deadline: Instant::now() + TIME_MAX,
        bytes_left: READ_BYTES_MAX,
        extents: HashMap::new(),
        places: HashMap::new(),
        copies: HashSet::new(),
    };
    let mut audited = Audited::default();
    let step = receipts.len().div_ceil(WINDOWS).max(1);
    for (n, Receipt { id, place }) in receipts.iter().enumerate() {
        if audit.is_over() {
            break;
        }
        let fate = match audit.seen(place).await? {
            Seen::Message(found) if found == Some(*id) => Fate::Found,
            // Another event is in its place, so this is another stream of that name.
            Seen::Message(_) | Seen::NoStream => Fate::Lost,
            Seen::Nothing => audit.fate(place).await?,
        };
        audited.count(*id, fate);
        if fate == Fate::Found && n % step == 0 {
            audit.look_behind(place).await?;
        }
    }
    audited.copies = audit.copies.len() as u64;
    Ok(audited)
}

struct Audit<'a> {
    connection: &'a Connection,
    deadline: Instant,
    bytes_left: usize,
    extents: HashMap<String, Option<Extent>>,
    /// For each stream.
    places: HashMap<String, Places>,
    copies: HashSet<(String, u64)>,
}

impl Audit<'_> {
    fn is_over(&self) -> bool {
        self.bytes_left == 0 || Instant::now() >= self.deadline
    }

    async fn seen(&mut self, place: &Place) -> Result<Seen, SinkError> {
        let what = format!("STREAM.MSG.GET.{}", place.stream);
        let Answer(answer) = ask(self.connection, &what, &json!({ "seq": place.seq })).await?;
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(error) => return refused(&place.stream, &error),
        };
        let message = answer["message"].take();
        let text = |name: &str| message[name].as_str().unwrap_or_default();
        let size = text("data").len() + text("hdrs").len();
        self.bytes_left = self.bytes_left.saturating_sub(size);
        let id = id_in(text("hdrs"));
        if let Some(id) = id {
            let places = self.places.entry(place.stream.clone()).or_default();
            if places.is_copy(id, place.seq) {
                self.copies.insert((place.stream.clone(), place.seq));
            }
        }
        Ok(Seen::Message(id))
    }

    /// Reads the next messages, to find copies.
    async fn look_behind(&mut self, place: &Place) -> Result<(), SinkError> {
        for further in 1..=WINDOW {
            let next = Place {
                stream: place.stream.clone(),
                seq: place.seq + further,
            };
            if self.is_over() || !matches!(self.seen(&next).await?, Seen::Message(_)) {
                break;
            }
        }
        Ok(())
    }

    /// Nothing is at this place.
    async fn fate(&mut self, place: &Place) -> Result<Fate, SinkError> {
        let known = self.extents.get(&place.stream).copied();
        if let Some(fate @ Fate::Expired) = known.map(|extent| fate(place.seq, extent)) {
            return Ok(fate);
        }
        // Asked after the message was not found, so that one that expired meanwhile is below the first.
        let extent = self.extent(&place.stream).await?;
        self.extents.insert(place.stream.clone(), extent);
        Ok(fate(place.seq, extent))
    }

    /// `None`: there is no such stream.
    async fn extent(&self, stream: &str) -> Result<Option<Extent>, SinkError> {
        let Answer(answer) = ask(self.connection, &format!("STREAM.INFO.{stream}"), &Value::Null).await?;
        match answer {
            Ok(info) => Ok(Some(Extent::read(&info))),
            Err(error) => refused(stream, &error).map(|_| None),
        }
    }
}

/// Any other refusal says nothing about events.
fn refused(stream: &str, error: &ApiError) -> Result<Seen, SinkError> {
    match ErrorCode(error.code) {
        ErrorCode::NO_MESSAGE_FOUND => Ok(Seen::Nothing),
        ErrorCode::STREAM_NOT_FOUND => Ok(Seen::NoStream),
        _ => Err(SinkError::new(
            SinkErrorKind::Unavailable,
            format!(
                "stream {stream} can't be read: {} (error {})",
                error.text, error.code
            ),
        )),
    }
}

impl Extent {
    fn read(info: &Value) -> Self {
        let (config, state) = (&info["config"], &info["state"]);
        let sequence = |name: &str| state[name].as_u64().unwrap_or_default();
        // Without a limit, a number is 0 or -1.
        let limited = |name: &str| config[name].as_i64().is_some_and(|limit| limit > 0);
        let retention = config["retention"].as_str().unwrap_or("limits");
        let drops_any =
            limited("max_msgs_per_subject") || retention != "limits" || config["allow_msg_ttl"] == true;
        Self {
            first: sequence("first_seq"),
            last: sequence("last_seq"),
            drops_oldest: drops_any || ["max_age", "max_msgs", "max_bytes"].into_iter().any(limited),
            drops_any,
        }
    }
}

/// What became of an event that is not at its place. A stream that was created again can't be told from one that has
/// lost its data.
fn fate(seq: u64, extent: Option<Extent>) -> Fate {
    match extent {
        Some(extent) if seq > extent.last => Fate::Lost,
        Some(extent) if extent.drops_any => Fate::Expired,
        Some(extent) if extent.drops_oldest && seq < extent.first => Fate::Expired,
        _ => Fate::Lost,
    }
}

/// The id in a message's headers, as the server encodes them.
fn id_in(headers: &str) -> Option<Uuid> {
    let headers = STANDARD.decode(headers).ok()?;
    let headers = String::from_utf8_lossy(&headers);
    let mut lines = headers.lines().filter_map(|line| line.split_once(':'));
    let (_, id) = lines.find(|(name, _)| name.eq_ignore_ascii_case(wire::NATS_MSG_ID))?;
    id.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(config: Value) -> Option<Extent> {
        let state = json!({ "first_seq": 10, "last_seq": 20 });
        Some(Extent::read(&json!({ "config": config, "state": state })))
    }

    #[test]
    fn what_a_limit_explains_has_expired_and_the_rest_is_lost() {
        let none = extent(json!({ "retention": "limits", "max_age": 0, "max_msgs": -1, "max_bytes": -1 }));
        for seq in [5, 15, 25] {
            assert_eq!(fate(seq, none), Fate::Lost, "{seq}");
        }
        for limit in ["max_age", "max_msgs", "max_bytes"] {
            let limited = extent(json!({ "retention": "limits", limit: 1_000 }));
            let fates = [5, 15, 25].map(|seq| fate(seq, limited));
            assert_eq!(fates, [Fate::Expired, Fate::Lost, Fate::Lost], "{limit}");
        }
        for config in [
            json!({ "max_msgs_per_subject": 1 }),
            json!({ "retention": "workqueue" }),
            json!({ "retention": "interest" }),
            json!({ "allow_msg_ttl": true }),
        ] {
            let fates = [5, 15, 25].map(|seq| fate(seq, extent(config.clone())));
            assert_eq!(fates, [Fate::Expired, Fate::Expired, Fate::Lost], "{config}");
        }
        assert_eq!(fate(15, None), Fate::Lost, "the stream is gone");
    }

    #[test]
    fn the_id_is_found_among_the_headers() {
        let id = Uuid::now_v7();
        let headers = format!("NATS/1.0\r\nA: b\r\nnats-msg-id: {id}\r\n\r\n");
        assert_eq!(id_in(&STANDARD.encode(headers)), Some(id));
        for bad in ["", "%", &STANDARD.encode("NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n")] {
            assert_eq!(id_in(bad), None);
        }
    }

    #[test]
    fn a_place_is_read_from_an_acknowledgement() {
        let place = Place::read(br#"{"stream":"S","seq":7,"duplicate":true,"domain":"hub"}"#).unwrap();
        assert_eq!((place.stream.as_str(), place.seq), ("S", 7));
        assert_eq!(Place::read(br#"{"error":{"code":503}}"#), None);
    }
}
