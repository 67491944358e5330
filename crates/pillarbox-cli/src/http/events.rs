//! Events written over HTTP: one as JSON, or many as a JSON list or as NDJSON. All are written in one
//! transaction, or none.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
};
use pillarbox::{EnqueueError, Enqueued, Event, EventId, Limits};
use pillarbox_relay::store::admin::AdminEnqueueError;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::{
    Api,
    access::Caller,
    openapi::EventsBody,
    problem::{ErrorBody, Problem},
    turn::turn,
};

/// Upper bound for large bodies in memory and for concurrent writers at the database; others wait a few seconds.
pub(super) const WRITERS_MAX: usize = 8;
/// Smaller bodies are read without waiting, so a slow sender does not block writers of one or two events.
const SMALL_BODY_BYTES_MAX: usize = 64 * 1024;
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The room for an event's fields besides its payload.
const EVENT_OVERHEAD_BYTES_MAX: usize = 64 * 1024;
const EVENTS_MAX: usize = 10_000;
/// A slower sender gives up its place to another.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// What became of the events of a request.
#[derive(Serialize, ToSchema)]
pub(super) struct Written {
    new: usize,
    duplicate: usize,
    events: Vec<One>,
}

#[derive(Serialize, ToSchema)]
struct One {
    #[schema(value_type = String)]
    id: EventId,
    result: Outcome,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    New,
    /// An event with this id existed already. It was not changed.
    Duplicate,
}

/// Writes one event or many, all of them or none
#[utoipa::path(
    post,
    path = "/v1/events",
    security(("token" = ["produce"])),
    extensions(("x-scoped" = json!(true))),
    request_body(content((EventsBody = "application/json"), (String = "application/x-ndjson"))),
    responses(
        (status = 201, description = "They are written; at least one is new", body = Written),
        (status = 200, description = "All of them existed already", body = Written),
        (status = 408, description = "The body did not arrive in time", body = ErrorBody),
        (status = 409, description = "A version of an aggregate is taken", body = ErrorBody),
        (status = 413, description = "The body, a payload or the number of events is too large", body = ErrorBody),
        (status = 415, description = "The content type is not one of these", body = ErrorBody),
        (status = 422, description = "An event is refused; `index` says which", body = ErrorBody),
    )
)]
pub(super) async fn write(
    State(api): State<Arc<Api>>,
    caller: Caller,
    request: Request,
) -> Result<(StatusCode, Json<Written>), Problem> {
    let (head, body) = request.into_parts();
    let form = Form::of(&head.headers)?;
    let bytes_max = BODY_BYTES_MAX.max(
        api.limits
            .payload_bytes_max
            .saturating_add(EVENT_OVERHEAD_BYTES_MAX),
    );
    let length = length(&head.headers);
    // The semaphores are never closed.
    let large = length.is_none_or(|length| length > SMALL_BODY_BYTES_MAX);
    let _place = if large {
        Some(turn(api.large_bodies.acquire(), "send large bodies").await?)
    } else {
        None
    };
    let body = tokio::time::timeout(BODY_TIME_MAX, whole(body, length, bytes_max))
        .await
        .map_err(|_| {
            Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "the body took too long: send it faster",
            )
        })??;
    let mut events = form.read(&body)?;
    caller.stamp(&mut events)?;
    let _writer = turn(api.writers.acquire(), "write events").await?;
    let results = api
        .admin
        .enqueue(&api.limits, &events)
        .await
        .map_err(|error| refusal(error, &api.limits))?;
    let new = results.iter().filter(|result| **result == Enqueued::New).count();
    let duplicate = results.len() - new;
    let one = |(event, result): (&Event, Enqueued)| One {
        id: event.id.clone(),
        result: match result {
            Enqueued::New => Outcome::New,
            Enqueued::Duplicate => Outcome::Duplicate,
        },
    };
    let status = if new > 0 {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let events = events.iter().zip(results).map(one).collect();
    let written = Written {
        new,
        duplicate,
        events,
    };
    Ok((status, Json(written)))
}

fn length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn whole(body: Body, length: Option<usize>, bytes_max: usize) -> Result<Bytes, Problem> {
    let too_large = || {
        let text = format!("the body has more than {bytes_max} bytes: send the events in parts");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    if length.is_some_and(|length| length > bytes_max) {
        return Err(too_large());
    }
    to_bytes(body, bytes_max).await.map_err(|error| {
        match std::error::Error::source(&error)
            .is_some_and(|cause| cause.to_string().contains("length limit"))
        {
            true => too_large(),
            false => Problem::bad("the body ended too early"),
        }
    })
}

/// The formats of events.
#[derive(Clone, Copy)]
enum Form {
    Json,
    Ndjson,
}

impl Form {
    /// A form on a page of another site can send neither of these.
    fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let kind = headers
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let kind = kind
            .and_then(|kind| kind.split(';').next())
            .unwrap_or_default()
            .trim();
        match kind.to_ascii_lowercase().as_str() {
            "application/json" => Ok(Self::Json),
            "application/x-ndjson" | "application/ndjson" => Ok(Self::Ndjson),
            _ => Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "send an event or a list of events as application/json, or one event per line as application/x-ndjson",
            )),
        }
    }

    fn read(self, body: &[u8]) -> Result<Vec<Event>, Problem> {
        let events = match self {
            Self::Json if body.trim_ascii_start().starts_with(b"[") => serde_json::from_slice(body)
                .map_err(|e| Problem::bad(format!("the body is not a list of events: {e}")))?,
            Self::Json => {
                let event = serde_json::from_slice(body);
                vec![event.map_err(|e| Problem::bad(format!("the body is not an event: {e}")))?]
            }
            Self::Ndjson => lines(body)?,
        };
        match events.len() {
            0 => Err(Problem::bad("there is no event in the body")),
            1..=EVENTS_MAX => Ok(events),
            many => Err(Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("there are {many} events; the maximum is {EVENTS_MAX}: send them in parts"),
            )),
        }
    }
}

fn lines(body: &[u8]) -> Result<Vec<Event>, Problem> {
    body.split(|byte| *byte == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.trim_ascii().is_empty())
        .map(|(number, line)| {
            serde_json::from_slice(line).map_err(|e| {
                let text = e.to_string().replace("at line 1 column", "at column");
                Problem::bad(format!("line {}: {text}. Nothing was written", number + 1))
            })
        })
        .collect()
}

fn refusal(error: AdminEnqueueError, limits: &Limits) -> Problem {
    let error = match error {
        AdminEnqueueError::Store(error) => return error.into(),
        AdminEnqueueError::Refused(error) => error,
    };
    match &error {
        EnqueueError::Refused { index, problem } => {
            let text = format!("event {index}: {problem}. Nothing was written");
            let too_large = matches!(problem, pillarbox::CheckError::PayloadTooLarge { .. });
            let status = match too_large {
                true => StatusCode::PAYLOAD_TOO_LARGE,
                false => StatusCode::UNPROCESSABLE_ENTITY,
            };
            Problem::new(status, text)
                .with(json!({ "index": index, "payload_bytes_max": limits.payload_bytes_max }))
        }
        EnqueueError::Busy {
            class,
            pending,
            limit,
            oldest,
            retry_after,
        } => Problem::new(StatusCode::TOO_MANY_REQUESTS, error.to_string())
            .retry_after(*retry_after)
            .with(json!({
                "class": class,
                "pending": pending,
                "limit": limit,
                "oldest_seconds": oldest.map(|age| age.as_secs_f64()),
                "retry_after_seconds": retry_after.as_secs_f64(),
            })),
        EnqueueError::VersionTaken { .. } => Problem::new(StatusCode::CONFLICT, error.to_string()),
        EnqueueError::NotMigrated { .. } => Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        _ => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
