//! Looks up delivered events in their streams by sequence, and judges what became of those that are gone.

mod extent;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    time::Duration,
};

use async_nats::jetstream::ErrorCode;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use pillarbox::{EventId, wire};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::extent::{Extent, gone};
use super::{
    connect::Connection,
    streams::{Answer, ApiError, ask_domain, is_name},
};
use crate::sink::{
    SinkError, SinkErrorKind,
    audit::{Entry, Fate, Judged, Places},
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
    #[serde(flatten)]
    at: At,
    seq: u64,
}

/// A stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
struct At {
    stream: String,
    /// The JetStream domain. A stream of another domain is behind a leaf node, and only its own domain's API knows it.
    domain: Option<String>,
}

/// A delivered event.
#[derive(Debug, Clone)]
pub(super) struct Receipt {
    pub(super) id: EventId,
    pub(super) place: Place,
}

impl Place {
    /// From an acknowledgement.
    pub(super) fn read(acknowledgement: &[u8]) -> Option<Self> {
        let place: Self = serde_json::from_slice(acknowledgement).ok()?;
        // They become part of a subject.
        let named = is_name(&place.at.stream) && place.at.domain.as_deref().is_none_or(is_name);
        named.then_some(place)
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.domain {
            None => write!(f, "stream {}", self.stream),
            Some(domain) => write!(f, "stream {} of the domain {domain}", self.stream),
        }
    }
}

/// What is at a place of a stream.
enum Seen {
    /// A message with this id, if it has one.
    Message(Option<EventId>),
    Nothing,
    NoStream,
}

/// A stream that can't be read does not affect the others.
pub(super) async fn look_up(connection: &Connection, entries: Vec<Entry<Receipt>>) -> Judged<Receipt> {
    let mut audit = Audit {
        connection,
        deadline: Instant::now() + TIME_MAX,
        bytes_left: READ_BYTES_MAX,
        extents: HashMap::new(),
        places: HashMap::new(),
        copies: HashSet::new(),
    };
    let mut judged = Judged::default();
    let mut unreadable: HashSet<At> = HashSet::new();
    let step = entries.len().div_ceil(WINDOWS).max(1);
    for (n, entry) in entries.into_iter().enumerate() {
        let Receipt { id, place } = entry.receipt.clone();
        if audit.is_full() && !entry.missed {
            // The sample is smaller this time.
            continue;
        }
        if audit.is_over() || audit.is_full() || unreadable.contains(&place.at) {
            judged.unread(entry);
            continue;
        }
        let fate = match audit.fate(id.clone(), &place).await {
            Ok(fate) => fate,
            Err(error) => {
                judged.problem(&place.at.to_string(), error.message);
                unreadable.insert(place.at);
                judged.unread(entry);
                continue;
            }
        };
        judged.judge(id, entry, fate);
        if fate == Fate::Found
            && n % step == 0
            && let Err(error) = audit.look_behind(&place).await
        {
            judged.problem(&place.at.to_string(), error.message);
            unreadable.insert(place.at);
        }
    }
    judged.audited.copies = audit.copies.len() as u64;
    judged
}

struct Audit<'a> {
    connection: &'a Connection,
    deadline: Instant,
    bytes_left: usize,
    extents: HashMap<At, Option<Extent>>,
    places: HashMap<At, Places>,
    copies: HashSet<(At, u64)>,
}

impl Audit<'_> {
    fn is_full(&self) -> bool {
        self.bytes_left == 0
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    async fn fate(&mut self, id: EventId, place: &Place) -> Result<Fate, SinkError> {
        Ok(match self.seen(place).await? {
            Seen::Message(found) if found == Some(id) => Fate::Found,
            // Another event is in its place, so this is another stream of that name.
            Seen::Message(_) | Seen::NoStream => Fate::Lost,
            Seen::Nothing => self.gone(place).await?,
        })
    }

    async fn seen(&mut self, place: &Place) -> Result<Seen, SinkError> {
        let what = format!("STREAM.MSG.GET.{}", place.at.stream);
        let Answer(answer) = self.ask(&place.at, &what, &json!({ "seq": place.seq })).await?;
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(error) => return refused(&place.at, &error),
        };
        let message = answer["message"].take();
        let text = |name: &str| message[name].as_str().unwrap_or_default();
        let size = text("data").len() + text("hdrs").len();
        self.bytes_left = self.bytes_left.saturating_sub(size);
        let id = id_in(text("hdrs"));
        if let Some(id) = &id {
            let places = self.places.entry(place.at.clone()).or_default();
            if places.before(id.clone(), place.seq).is_some() {
                self.copies.insert((place.at.clone(), place.seq));
            }
        }
        Ok(Seen::Message(id))
    }

    /// Reads the next messages, to find copies.
    async fn look_behind(&mut self, place: &Place) -> Result<(), SinkError> {
        for further in 1..=WINDOW {
            let next = Place {
                at: place.at.clone(),
                seq: place.seq + further,
            };
            let over = self.is_over() || self.is_full();
            if over || !matches!(self.seen(&next).await?, Seen::Message(_)) {
                break;
            }
        }
        Ok(())
    }

    /// Nothing is at this place.
    async fn gone(&mut self, place: &Place) -> Result<Fate, SinkError> {
        let known = self.extents.get(&place.at).copied();
        if let Some(fate @ Fate::Expired) = known.map(|extent| gone(place.seq, extent)) {
            return Ok(fate);
        }
        // Asked after the message was not found, so that one that expired meanwhile is below the first.
        let extent = self.extent(&place.at).await?;
        self.extents.insert(place.at.clone(), extent);
        Ok(gone(place.seq, extent))
    }

    /// `None`: there is no such stream.
    async fn extent(&self, at: &At) -> Result<Option<Extent>, SinkError> {
        let what = format!("STREAM.INFO.{}", at.stream);
        let Answer(answer) = self.ask(at, &what, &Value::Null).await?;
        match answer {
            Ok(info) => Ok(Some(Extent::read(&info))),
            Err(error) => refused(at, &error).map(|_| None),
        }
    }

    async fn ask(&self, at: &At, what: &str, payload: &Value) -> Result<Answer, SinkError> {
        ask_domain(self.connection, at.domain.as_deref(), what, payload).await
    }
}

/// Any other refusal says nothing about events.
fn refused(at: &At, error: &ApiError) -> Result<Seen, SinkError> {
    match ErrorCode(error.code) {
        ErrorCode::NO_MESSAGE_FOUND => Ok(Seen::Nothing),
        ErrorCode::STREAM_NOT_FOUND => Ok(Seen::NoStream),
        _ => Err(SinkError::new(
            SinkErrorKind::Unavailable,
            format!("{at} can't be read: {} (error {})", error.text, error.code),
        )),
    }
}

/// The id in a message's headers, as the server encodes them.
fn id_in(headers: &str) -> Option<EventId> {
    let headers = STANDARD.decode(headers).ok()?;
    let headers = String::from_utf8_lossy(&headers);
    let mut lines = headers.lines().filter_map(|line| line.split_once(':'));
    let (_, id) = lines.find(|(name, _)| name.eq_ignore_ascii_case(wire::NATS_MSG_ID))?;
    Some(id.strip_prefix(' ').unwrap_or(id).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_found_among_the_headers() {
        for id in [EventId::new(), "заказ 7: a ".into()] {
            let headers = format!("NATS/1.0\r\nA: b\r\nnats-msg-id: {id}\r\n\r\n");
            assert_eq!(id_in(&STANDARD.encode(headers)), Some(id));
        }
        for bad in ["", "%", &STANDARD.encode("NATS/1.0\r\nA: b\r\n\r\n")] {
            assert_eq!(id_in(bad), None);
        }
    }

    #[test]
    fn a_place_is_read_from_an_acknowledgement() {
        let place = Place::read(br#"{"stream":"S","seq":7,"duplicate":true,"domain":"hub"}"#).unwrap();
        assert_eq!(
            (place.at.to_string(), place.seq),
            ("stream S of the domain hub".into(), 7)
        );
        for unusable in [
            &br#"{"error":{"code":503}}"#[..],
            br#"{"stream":"S\r\nPUB","seq":7}"#,
            br#"{"stream":"S","seq":7,"domain":"a b"}"#,
        ] {
            assert_eq!(Place::read(unusable), None);
        }
    }
}
