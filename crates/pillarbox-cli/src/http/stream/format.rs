//! The two formats of the stream.

use std::sync::Arc;

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use pillarbox_relay::event_log::{
    Position,
    hub::{End, Line},
};
use serde_json::json;

const SSE: &str = "text/event-stream";

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

    pub(super) fn lines(self, lines: &[Arc<Line>]) -> Bytes {
        let bytes = lines.iter().map(|line| line.text.len() + 40).sum();
        let mut part = Vec::with_capacity(bytes);
        for line in lines {
            match self {
                Self::Ndjson => part.extend_from_slice(&line.text),
                Self::Sse => {
                    part.extend_from_slice(format!("id: {}\ndata: ", line.position).as_bytes());
                    part.extend_from_slice(&line.text);
                    part.push(b'\n');
                }
            }
            part.push(b'\n');
        }
        part.into()
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
        match self {
            Self::Ndjson => format!("{line}\n"),
            Self::Sse => format!("event: end\ndata: {line}\n\n"),
        }
        .into()
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
            assert!(Format::Sse.end(&end, 7).ends_with(b"\n\n"));
        }
    }
}
