//! A stream of delivered events from the event log, as NDJSON or as Server-Sent Events.

mod format;

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use jiff::Timestamp;
use pillarbox_relay::event_log::{
    FollowError, LogFilter, Position, Start,
    hub::{End, Next, Subscription},
};
use serde::Deserialize;
use serde_json::json;
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;

use self::format::{Format, Last, Part};
use super::{
    Api,
    access::Caller,
    connections::ReadBy,
    problem::{ErrorBody, Problem},
};

/// How often a client without events gets a sign of life, with the position it has reached.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a client may take to read one page: at most 256 events and little more than 64 KB, or one event.
const PAGE_TIME_MAX: Duration = Duration::from_secs(60);
/// How long it may then take to read the last line. Then the connection is closed.
const LAST_LINE_MAX: Duration = Duration::from_secs(30);
const LAST_MAX: Position = 10_000;
const LAST_EVENT_ID: &str = "last-event-id";

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Start after this position: the latest that the client has processed. 0: from the beginning of the log.
    /// Without it, the stream starts with the next event. The header `Last-Event-ID` replaces it.
    #[param(minimum = 0)]
    after: Option<Position>,
    /// Start with this many of the latest entries, at most 10,000. Not together with `after`.
    #[param(minimum = 0, maximum = 10_000)]
    last: Option<Position>,
    /// A topic, or a pattern: `*` is one token, `>` at the end is all the rest.
    topic: Option<String>,
    event_type: Option<String>,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    project_id: Option<String>,
    user_id: Option<String>,
}

/// Delivered events as they happen
///
/// One JSON object per line, or Server-Sent Events with `Accept: text/event-stream`. Every relay serves every
/// client, and each event comes once, in the order of the log. `position` is where a client resumes. A line
/// `{"heartbeat":true,"position":…}` comes first if the request has no position, and every 15 seconds without
/// events. A line `{"end":…}` is the last one, if the server ends the stream: the relay stops, the client is too
/// slow, its token has expired, or the log has changed.
#[utoipa::path(
    get,
    path = "/v1/stream",
    security(("token" = ["read"])),
    params(Wanted, ("last-event-id" = Option<String>, Header, description = "Start after this position")),
    extensions(("x-scoped" = json!(true))),
    responses(
        (status = 200, description = "The events, without an end", content(
            (String = "application/x-ndjson"), (String = "text/event-stream")
        )),
        (status = 404, description = "There is no event log", body = ErrorBody),
        (status = 409, description = "The log does not have this position", body = ErrorBody),
        (status = 410, description = "The entries after the position have expired", body = ErrorBody),
        (
            status = 503,
            description = "Too many clients follow the stream already, or the database is away",
            body = ErrorBody
        ),
    )
)]
pub(super) async fn handler(
    State(api): State<Arc<Api>>,
    caller: Caller,
    read_by: Option<Extension<ReadBy>>,
    headers: HeaderMap,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Problem> {
    let time_left = caller.time_left(Timestamp::now());
    let token_expires = time_left.and_then(|left| Instant::now().checked_add(left));
    let Query(wanted) = wanted.map_err(|rejection| Problem::bad(rejection.body_text()))?;
    let after = resume(&headers, wanted.after)?;
    if wanted.last.is_some_and(|last| !(0..=LAST_MAX).contains(&last)) {
        return Err(Problem::bad(format!(
            "`last` must be a number from 0 to {LAST_MAX}"
        )));
    }
    if wanted.last.is_some() && wanted.after.is_some() {
        return Err(Problem::bad(
            "`after` and `last` are two ways to say where to start: give one",
        ));
    }
    let (project_id, user_id) = caller.restrict(given(wanted.project_id), given(wanted.user_id))?;
    let filter = LogFilter {
        topic: given(wanted.topic),
        event_type: given(wanted.event_type),
        aggregate_type: given(wanted.aggregate_type),
        aggregate_id: given(wanted.aggregate_id),
        project_id,
        user_id,
        ..LogFilter::default()
    };
    if let Some(problem) = filter.problem() {
        return Err(Problem::bad(problem));
    }
    let (_, hub) = api.log()?;
    let start = match (after, wanted.last) {
        (None, Some(last)) => Start::Last(last),
        (after, _) => after.into(),
    };
    let Ok(place) = api.stream_clients.clone().try_acquire_owned() else {
        let text = format!(
            "{} clients already follow the stream: try again later, at another relay, or raise `outbox.http.stream_clients_max`",
            api.stream_clients_max
        );
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, text));
    };
    let subscription = hub.subscribe(start, filter).await?;
    let format = Format::accepted(&headers);
    let following = Following {
        position: subscription.position(),
        subscription,
        format,
        closing: api.closing.clone(),
        token_expires,
        step: if after.is_some() {
            Step::Events
        } else {
            Step::Position
        },
        parts: VecDeque::new(),
        page_since: Instant::now(),
        complete: true,
        read_by: read_by.map(|Extension(read_by)| read_by).unwrap_or_default(),
        _place: Some(place),
    };
    let headers = [
        (header::CONTENT_TYPE, format.content_type()),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let body = Body::from_stream(futures::stream::unfold(following, Following::next));
    Ok((headers, body).into_response())
}

/// An empty value counts as missing.
fn given(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.is_empty())
}

/// Where the client continues. A browser that reconnects sends the header, and the address of its first request.
fn resume(headers: &HeaderMap, after: Option<Position>) -> Result<Option<Position>, Problem> {
    let after = match headers.get(LAST_EVENT_ID) {
        None => after,
        Some(id) if id.is_empty() => after,
        Some(id) => Some(id.to_str().ok().and_then(|id| id.parse().ok()).ok_or_else(|| {
            Problem::bad("`Last-Event-ID` is not a position: use the `position` of the last event")
        })?),
    };
    match after {
        Some(after) if after < 0 => Err(Problem::bad("a position is 0 or more")),
        after => Ok(after),
    }
}

/// What a client gets next.
#[derive(Debug, PartialEq)]
enum Step {
    /// The position at which the stream starts. A client without one that loses its connection before the first event
    /// would not know where to continue.
    Position,
    Events,
    Nothing,
}

/// A client of the stream.
struct Following {
    subscription: Subscription,
    format: Format,
    closing: CancellationToken,
    /// `None`: never.
    token_expires: Option<Instant>,
    step: Step,
    /// What the answer has so far: everything up to here.
    position: Position,
    /// The rest of the latest page.
    parts: VecDeque<Part>,
    page_since: Instant,
    /// No event was sent only in part.
    complete: bool,
    read_by: ReadBy,
    _place: Option<OwnedSemaphorePermit>,
}

impl Following {
    /// The next part of the answer. It is asked for when there is room for it. So nothing can be said to a client that
    /// does not read: its connection ends.
    async fn next(mut self) -> Option<(Result<Bytes, std::convert::Infallible>, Self)> {
        match self.step {
            Step::Position => {
                self.step = Step::Events;
                let part = self.format.heartbeat(self.position);
                return Some((Ok(part), self));
            }
            Step::Events => {}
            Step::Nothing => return None,
        }
        let part = match self.rest_of_page() {
            Some(part) => part,
            None => self.next_page().await,
        };
        Some((Ok(part), self))
    }

    fn rest_of_page(&mut self) -> Option<Bytes> {
        let part = self.parts.pop_front()?;
        if self.page_since.elapsed() > PAGE_TIME_MAX && self.complete {
            return Some(self.end(&Last::Log(End::TooSlow)));
        }
        self.complete = part.position.is_some();
        self.position = part.position.unwrap_or(self.position);
        Some(part.bytes)
    }

    async fn next_page(&mut self) -> Bytes {
        self.read_by.set(None);
        let next = tokio::select! {
            biased;
            // Before the events: a stream that always has some must end with its token too.
            () = at(self.token_expires) => Err(Last::TokenExpired),
            // Events that are ready are sent before the other ends.
            next = self.subscription.next() => match next {
                Next::Lines(lines) => Ok(Some(lines)),
                Next::End(end) => Err(Last::Log(end)),
            },
            () = self.closing.cancelled() => Err(Last::Log(End::Closed)),
            () = tokio::time::sleep(HEARTBEAT) => Ok(None),
        };
        match next {
            Ok(Some(lines)) => {
                self.parts = self.format.parts(&lines);
                self.page_since = Instant::now();
                self.read_by
                    .set(Some(self.page_since + PAGE_TIME_MAX + LAST_LINE_MAX));
                self.rest_of_page().unwrap_or_default()
            }
            Ok(None) => {
                self.position = self.subscription.position();
                self.format.heartbeat(self.position)
            }
            Err(last) => {
                self.position = self.subscription.position();
                self.end(&last)
            }
        }
    }

    fn end(&mut self, last: &Last) -> Bytes {
        self.step = Step::Nothing;
        self.parts.clear();
        self.format.end(last, self.position)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // The connection may have another request.
        self.read_by.set(None);
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl From<FollowError> for Problem {
    fn from(error: FollowError) -> Self {
        let text = error.to_string();
        match error {
            FollowError::Expired { expired } => {
                Self::new(StatusCode::GONE, text).with(json!({ "expired": expired }))
            }
            FollowError::Beyond { last } => {
                Self::new(StatusCode::CONFLICT, text).with(json!({ "last": last }))
            }
            FollowError::Store(error) => error.into(),
        }
    }
}
