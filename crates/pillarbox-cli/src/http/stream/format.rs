//! The two formats of the stream.

use std::{collections::VecDeque, sync::Arc};

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use pillarbox_relay::event_log::{
    Position,
    hub::{End, Line},
};
use serde_json::json;

const SSE: &str = "text/event-stream";
/// A line of this size is not copied for each client.
const SHARED_FROM: usize = 4 * 1024;
/// Parts with copies have about this size.
const COPIED: usize = 16 * 1024;

/// A part of the answer.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) bytes: Bytes,
    /// The event that ends with it. `None`: an event is incomplete, so the answer can't end here.
    pub(super) position: Option<Position>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// One JSON object per line.
    Ndjson,
    /// Server-Sent Events: the position is the event's id.
    Sse,
}

/// Why a stream ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Last {
    Log(End),
    /// The token of the client.
    TokenExpired,
}

impl Format {
    /// The one that the client asks for; NDJSON unless it names Server-Sent Events.
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT).into_iter();
        let mut kinds = accepted
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        let is_sse = |kind: &str| {
            let name = kind.split(';').next().unwrap_or_default();
            name.trim().eq_ignore_ascii_case(SSE)
        };
        if kinds.any(is_sse) {
            Self::Sse
        } else {
            Self::Ndjson
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Sse => SSE,
        }
    }

    /// The parts of the answer with these lines. Small lines are copied, several into a part. A large one is a part of
    /// its own that all clients share.
    pub(super) fn parts(self, lines: &[Arc<Line>]) -> VecDeque<Part> {
        let mut parts = Parts::default();
        for line in lines {
            let is_shared = line.text.len() >= SHARED_FROM;
            if is_shared {
                parts.cut();
            }
            if self == Self::Sse {
                parts.copy(format!("id: {}\ndata: ", line.position).as_bytes());
            }
            if is_shared {
                parts.share(&line.text);
            } else {
                parts.copy(&line.text);
            }
            if self == Self::Sse {
                parts.copy(b"\n");
            }
            parts.ends_event(line.position);
            if is_shared || parts.copies.len() >= COPIED {
                parts.cut();
            }
        }
        parts.cut();
        parts.done
    }

    /// A sign of life. In SSE, an id without data changes the client's position and reports no event.
    pub(super) fn heartbeat(self, position: Position) -> Bytes {
        match self {
            Self::Ndjson => format!("{}\n", json!({ "heartbeat": true, "position": position })),
            Self::Sse => format!("id: {position}\n: heartbeat\n\n"),
        }
        .into()
    }

    /// The last line: why the stream ends, and where to continue.
    pub(super) fn end(self, end: &Last, position: Position) -> Bytes {
        let (word, advice) = match end {
            Last::TokenExpired => (
                "token_expired",
                "the token has expired: continue after `position` with a new one",
            ),
            Last::Log(End::TooSlow) => (
                "too_slow",
                "this client read too slowly: continue after `position`",
            ),
            Last::Log(End::Expired) => ("expired", "the next entries were deleted because of their age"),
            Last::Log(End::Replaced) => (
                "replaced",
                "the log was emptied or restored: start again, without a position",
            ),
            Last::Log(End::Closed) => (
                "closed",
                "the relay stops: continue after `position`, here or at another relay",
            ),
        };
        let line = json!({ "end": word, "position": position, "message": advice });
        match (self, end) {
            (Self::Ndjson, _) => format!("{line}\n"),
            // An empty id makes a browser forget its position, so that it connects again without one.
            (Self::Sse, Last::Log(End::Expired | End::Replaced)) => {
                format!("event: end\nid:\ndata: {line}\n\n")
            }
            (Self::Sse, Last::Log(End::TooSlow | End::Closed) | Last::TokenExpired) => {
                format!("event: end\nid: {position}\ndata: {line}\n\n")
            }
        }
        .into()
    }
}

#[derive(Default)]
struct Parts {
    done: VecDeque<Part>,
    /// The part that is being made. It ends with the event at `ended`, or in the middle of one.
    copies: Vec<u8>,
    ended: Option<Position>,
}

impl Parts {
    fn copy(&mut self, bytes: &[u8]) {
        self.ended = None;
        self.copies.extend_from_slice(bytes);
    }

    fn share(&mut self, bytes: &Bytes) {
        self.cut();
        self.done.push_back(Part {
            bytes: bytes.clone(),
            position: None,
        });
    }

    fn ends_event(&mut self, position: Position) {
        if let (true, Some(shared)) = (self.copies.is_empty(), self.done.back_mut()) {
            shared.position = Some(position);
            return;
        }
        self.ended = Some(position);
    }

    fn cut(&mut self) {
        if self.copies.is_empty() {
            return;
        }
        self.done.push_back(Part {
            bytes: std::mem::take(&mut self.copies).into(),
            position: self.ended.take(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &str) -> Format {
        let headers = [(header::ACCEPT, value.parse().unwrap())];
        Format::accepted(&headers.into_iter().collect())
    }

    #[test]
    fn a_browser_gets_server_sent_events() {
        assert_eq!(accept("text/event-stream"), Format::Sse);
        assert_eq!(accept("application/json, Text/Event-Stream;q=0.9"), Format::Sse);
        assert_eq!(accept("*/*"), Format::Ndjson);
        assert_eq!(Format::accepted(&HeaderMap::new()), Format::Ndjson);
    }

    #[test]
    fn the_last_line_says_why_and_where_to_continue() {
        let of_log = [End::TooSlow, End::Expired, End::Replaced, End::Closed].map(Last::Log);
        for end in of_log.into_iter().chain([Last::TokenExpired]) {
            let text = Format::Ndjson.end(&end, 7);
            let line: serde_json::Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(line["position"], 7);
            assert!(line["end"].is_string() && line["message"].is_string());
            let event = String::from_utf8(Format::Sse.end(&end, 7).to_vec()).unwrap();
            assert!(event.ends_with("\n\n"), "{event}");
            // A browser sends its last id when it connects again.
            let forgets = matches!(end, Last::Log(End::Expired | End::Replaced));
            let id = if forgets { "id:" } else { "id: 7" };
            assert!(event.lines().any(|line| line == id), "{event}");
        }
    }
}
