//! Dead letters: list, show, replay and discard.

mod asked;

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    extract::{
        DefaultBodyLimit, Path, Query, State,
        rejection::{BytesRejection, PathRejection, QueryRejection},
    },
    http::{HeaderMap, StatusCode},
};
use pillarbox::Event;
use pillarbox_relay::dead::{
    BulkError, DeadDetails, DeadGroup, DeadLetter, DeadLetters, ReplayAs, Touched, discard_all, replay_all,
};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::asked::{Discard, Replay, Wanted, body};
use super::{
    Api,
    access::{
        Caller,
        audit::{self, Action, Outcome},
    },
    event_id::event_id,
    openapi::EventBody,
    problem::{ErrorBody, Problem},
};

/// A filter with 1,000 ids has at most 252 KiB.
const BODY_BYTES_MAX: usize = 512 * 1024;

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(groups))
        .routes(routes!(show))
        .routes(routes!(replay))
        .routes(routes!(discard))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// A page of dead letters.
#[derive(Serialize, ToSchema)]
struct LetterPage {
    letters: Vec<DeadLetter>,
    /// Pass it as `before` to get the next page; `null` on the last one.
    next: Option<i64>,
}

#[derive(Serialize, ToSchema)]
struct Groups {
    groups: Vec<DeadGroup>,
}

/// What an action did.
#[derive(Serialize, ToSchema)]
struct Acted {
    dry_run: bool,
    /// The letters that matched.
    touched: Touched,
    /// How many were replayed or discarded.
    done: usize,
}

/// The dead letters, the latest first
#[utoipa::path(
    get,
    path = "/v1/dead",
    security(("token" = ["read"])),
    params(Wanted),
    responses((status = 200, description = "A page of letters", body = LetterPage))
)]
async fn list(
    State(api): State<Arc<Api>>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<LetterPage>, Problem> {
    let wanted = asked::query(wanted)?;
    let (filter, limit) = (wanted.filter()?, wanted.limit()?);
    let (state, before) = (wanted.state()?, wanted.before()?);
    // One more than requested, to know whether there is a next page.
    let mut letters = api.dead_letters.list(&filter, state, before, limit + 1).await?;
    let more = letters.len() > limit;
    letters.truncate(limit);
    let next = letters.last().filter(|_| more).map(|letter| letter.seq);
    Ok(Json(LetterPage { letters, next }))
}

/// The open dead letters, grouped by failure
#[utoipa::path(
    get,
    path = "/v1/dead/groups",
    security(("token" = ["read"])),
    params(Wanted),
    responses((status = 200, description = "The groups, the largest first", body = Groups))
)]
async fn groups(
    State(api): State<Arc<Api>>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Groups>, Problem> {
    let wanted = asked::query(wanted)?;
    wanted.only_a_filter()?;
    let mut groups = api.dead_letters.groups(&wanted.filter()?).await?;
    api.notices.add_told(&mut groups).await?;
    Ok(Json(Groups { groups }))
}

/// The payload is copied byte for byte, so this does not use a [`Value`], which would round its numbers.
#[derive(Serialize, ToSchema)]
pub(crate) struct WholeLetter {
    #[serde(flatten)]
    details: DeadDetails,
    /// `null` if its row can't be read or is gone.
    #[schema(value_type = Option<EventBody>)]
    event: Option<Event>,
}

/// Everything about one dead letter
#[utoipa::path(
    get,
    path = "/v1/dead/{id}",
    security(("token" = ["read"])),
    params(("id" = String, Path, description = "The id of the event")),
    responses(
        (status = 200, description = "The letter with its event", body = WholeLetter),
        (status = 404, description = "No dead letter has this id", body = ErrorBody),
    )
)]
async fn show(
    State(api): State<Arc<Api>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<WholeLetter>, Problem> {
    let id = event_id(id)?;
    let Some(details) = api.dead_letters.show(&id).await? else {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            format!("no dead letter has the id {id}: the event did not die, or its letter has expired"),
        ));
    };
    Ok(Json(details.into()))
}

impl From<DeadDetails> for WholeLetter {
    fn from(mut details: DeadDetails) -> Self {
        let event = details.event.take();
        Self { details, event }
    }
}

/// Delivers dead events again
#[utoipa::path(
    post,
    path = "/v1/dead/replay",
    security(("token" = ["operate"])),
    request_body = Replay,
    responses(
        (status = 200, description = "What was done", body = Acted),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 415, description = "The body is not declared as JSON", body = ErrorBody),
    )
)]
async fn replay(
    State(api): State<Arc<Api>>,
    caller: Caller,
    headers: HeaderMap,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<Json<Acted>, Problem> {
    let asked: Replay = body(&headers, bytes)?;
    let action = Action {
        name: "replay",
        actor: asked.actor(&caller)?,
        filter: asked::bulk_filter(&asked.filter, asked.all, "replay")?.clone(),
        dry_run: asked.dry_run,
    };
    if !api.replay_allowed {
        let why = "the configuration forbids it: set `outbox.dlq.enable_manual_replay` to true";
        let refused = Outcome {
            error: Some(why.into()),
            ..Outcome::default()
        };
        audit::acted(&action, &refused);
        return Err(Problem::new(StatusCode::FORBIDDEN, why));
    }
    act(&api, action, What::Replay(asked.send.into())).await
}

/// Closes dead letters without delivering their events
#[utoipa::path(
    post,
    path = "/v1/dead/discard",
    security(("token" = ["operate"])),
    request_body = Discard,
    responses(
        (status = 200, description = "What was done", body = Acted),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 415, description = "The body is not declared as JSON", body = ErrorBody),
    )
)]
async fn discard(
    State(api): State<Arc<Api>>,
    caller: Caller,
    headers: HeaderMap,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<Json<Acted>, Problem> {
    let asked: Discard = body(&headers, bytes)?;
    let action = Action {
        name: "discard",
        actor: asked.actor(&caller)?,
        filter: asked::bulk_filter(&asked.filter, asked.all, "discard")?.clone(),
        dry_run: asked.dry_run,
    };
    act(&api, action, What::Discard).await
}

#[derive(Clone, Copy)]
enum What {
    Replay(ReplayAs),
    Discard,
}

/// The action goes on if the client goes away: a part of it may be done already, and all of it must be in the log.
async fn act(api: &Arc<Api>, action: Action, what: What) -> Result<Json<Acted>, Problem> {
    let letters = api.dead_letters.clone();
    let ended = api
        .operations
        .run(async move { carry_out(&*letters, action, what).await });
    ended.await.unwrap_or_else(|| {
        let text = "the action ended with an error of Pillarbox: look at the letters before you repeat it";
        Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text))
    })
}

async fn carry_out(letters: &dyn DeadLetters, action: Action, what: What) -> Result<Json<Acted>, Problem> {
    let mut outcome = Outcome::default();
    let answer = done(letters, &action, what, &mut outcome).await;
    audit::acted(&action, &outcome);
    answer.map(Json)
}

async fn done(
    letters: &dyn DeadLetters,
    action: &Action,
    what: What,
    outcome: &mut Outcome,
) -> Result<Acted, Problem> {
    let Action {
        actor,
        filter,
        dry_run,
        ..
    } = action;
    let touched = letters.touched(filter).await;
    let touched = touched.inspect_err(|error| outcome.error = Some(error.chain()))?;
    outcome.touched = Some(touched.count);
    let done = match what {
        _ if *dry_run => Ok(0),
        What::Replay(send) => replay_all(letters, filter, send, actor, &mut |_| ()).await,
        What::Discard => discard_all(letters, filter, actor, &mut |_| ()).await,
    };
    outcome.done = match &done {
        Ok(done) | Err(BulkError::Store { done, .. }) => *done,
        Err(BulkError::TooMany) => 0,
    };
    outcome.error = done.as_ref().err().map(ToString::to_string);
    Ok(Acted {
        dry_run: *dry_run,
        touched,
        done: done?,
    })
}
