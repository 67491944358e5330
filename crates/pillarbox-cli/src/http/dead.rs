//! Dead letters: list, show, replay and discard.

mod asked;

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{
        DefaultBodyLimit, Path, Query, State,
        rejection::{BytesRejection, PathRejection, QueryRejection},
    },
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use pillarbox::Event;
use pillarbox_relay::dead::{DeadDetails, discard_all, replay_all};
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use self::asked::{Discard, Replay, Wanted, body};
use super::{Api, problem::Problem};

/// A filter with 1,000 ids has 39 KiB.
const BODY_BYTES_MAX: usize = 64 * 1024;

pub(super) fn router() -> Router<Arc<Api>> {
    Router::new()
        .route("/v1/dead", get(list))
        .route("/v1/dead/groups", get(groups))
        .route("/v1/dead/{id}", get(show))
        .route("/v1/dead/replay", post(replay))
        .route("/v1/dead/discard", post(discard))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

type Answer = Result<Json<Value>, Problem>;

async fn list(State(api): State<Arc<Api>>, wanted: Result<Query<Wanted>, QueryRejection>) -> Answer {
    let wanted = asked::query(wanted)?;
    let (filter, limit) = (wanted.filter()?, wanted.limit()?);
    let (state, before) = (wanted.state()?, wanted.before()?);
    // One more than requested, to know whether there is a next page.
    let mut letters = api.dead_letters.list(&filter, state, before, limit + 1).await?;
    let more = letters.len() > limit;
    letters.truncate(limit);
    let next = letters.last().filter(|_| more).map(|letter| letter.seq);
    Ok(Json(json!({ "letters": letters, "next": next })))
}

async fn groups(State(api): State<Arc<Api>>, wanted: Result<Query<Wanted>, QueryRejection>) -> Answer {
    let wanted = asked::query(wanted)?;
    wanted.only_a_filter()?;
    let mut groups = api.dead_letters.groups(&wanted.filter()?).await?;
    api.notices.add_told(&mut groups).await?;
    Ok(Json(json!({ "groups": groups })))
}

/// The payload is copied byte for byte, so this does not use a [`Value`], which would round its numbers.
#[derive(Serialize)]
pub(crate) struct Shown {
    #[serde(flatten)]
    details: DeadDetails,
    /// `null` if its row can't be read or is gone.
    event: Option<Event>,
}

async fn show(
    State(api): State<Arc<Api>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Shown>, Problem> {
    let Path(id) = id.map_err(|rejection| Problem::bad(rejection.body_text()))?;
    let id: Uuid = id
        .parse()
        .map_err(|_| Problem::bad(format!("`{id}` is not an event id: use a UUID from /v1/dead")))?;
    let Some(details) = api.dead_letters.show(id).await? else {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            format!("no dead letter has the id {id}: the event did not die, or its letter has expired"),
        ));
    };
    Ok(Json(details.into()))
}

impl From<DeadDetails> for Shown {
    fn from(mut details: DeadDetails) -> Self {
        let event = details.event.take();
        Self { details, event }
    }
}

async fn replay(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    bytes: Result<Bytes, BytesRejection>,
) -> Answer {
    if !api.replay_allowed {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "the configuration forbids it: set `outbox.dlq.enable_manual_replay` to true",
        ));
    }
    let asked: Replay = body(&headers, bytes)?;
    let actor = asked.actor()?;
    let filter = asked::bulk_filter(&asked.filter, asked.all, "replay")?;
    let letters = &*api.dead_letters;
    let touched = letters.touched(filter).await?;
    let done = match asked.dry_run {
        true => 0,
        false => replay_all(letters, filter, asked.send.into(), &actor, &mut |_| ()).await?,
    };
    Ok(Json(
        json!({ "dry_run": asked.dry_run, "touched": touched, "done": done }),
    ))
}

async fn discard(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    bytes: Result<Bytes, BytesRejection>,
) -> Answer {
    let asked: Discard = body(&headers, bytes)?;
    let actor = asked.actor()?;
    let filter = asked::bulk_filter(&asked.filter, asked.all, "discard")?;
    let letters = &*api.dead_letters;
    let touched = letters.touched(filter).await?;
    let done = match asked.dry_run {
        true => 0,
        false => discard_all(letters, filter, &actor, &mut |_| ()).await?,
    };
    Ok(Json(
        json!({ "dry_run": asked.dry_run, "touched": touched, "done": done }),
    ))
}
