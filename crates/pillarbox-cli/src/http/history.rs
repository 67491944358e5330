//! What became of events: the entries of the event log, their counts, and the life of one event.

mod scoped;

use std::sync::Arc;

use axum::{
    Json,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    http::StatusCode,
};
use jiff::{SignedDuration, Timestamp};
use pillarbox::Event;
use pillarbox_relay::{
    dead::Failure,
    event_log::{
        COUNTED_MAX, HourCount, LogCounts, LogEntry, LogFilter, Position,
        life::{WholeLife, whole_life},
    },
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Api,
    access::Caller,
    event_id::event_id,
    openapi::EventBody,
    problem::{ErrorBody, Problem},
    turn::turn,
};

const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1_000;
/// Without `since`, this much is counted.
const COUNTED: SignedDuration = SignedDuration::from_hours(24);

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(counts))
        .routes(routes!(show))
}

/// Which entries of the log. An empty value counts as missing.
#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Wanted {
    /// A topic, or a pattern: `*` is one token, `>` at the end is all the rest.
    topic: Option<String>,
    event_type: Option<String>,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    project_id: Option<String>,
    user_id: Option<String>,
    correlation_id: Option<String>,
    /// `published` or `dead`.
    status: Option<String>,
    /// Entries of this time or later, such as `2026-01-31T12:00:00Z`.
    since: Option<String>,
    /// Entries before this time.
    until: Option<String>,
    /// The `next` of the page before.
    before: Option<String>,
    /// How many entries: 1 to 1,000.
    limit: Option<String>,
}

/// A page of the log.
#[derive(Serialize, ToSchema)]
struct LogPage {
    /// The latest first.
    #[schema(value_type = Vec<LoggedEvent>)]
    events: Vec<LogEntry>,
    /// Pass it as `before` to get the next page; `null` on the last one. A page may have fewer entries than asked
    /// for, because one request searches a bounded part of the log.
    #[schema(value_type = Option<i64>)]
    next: Option<Position>,
}

/// An entry of the log: what became of an event, and the event.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it only describes the entry")]
struct LoggedEvent {
    position: i64,
    /// `published` or `dead`.
    status: String,
    at: Timestamp,
    reason: Option<String>,
    error: Option<String>,
    seq: i64,
    created_at: Timestamp,
    attempts: u32,
    /// The failed attempts before the outcome, if there were any.
    failures: Option<Vec<Failure>>,
    sink: Option<String>,
    /// The name of the relay that wrote the entry.
    relay: Option<String>,
    #[schema(inline)]
    #[serde(flatten)]
    event: EventBody,
}

#[derive(Serialize, ToSchema)]
struct Counts {
    counts: Vec<HourCount>,
    /// The entries from this time on are all counted; `null`: all that there are.
    since: Option<Timestamp>,
    /// Older entries were asked for, too, but there are more than can be counted at once (5 million): `since` is the time
    /// from which on the counts are complete.
    partial: bool,
}

impl Counts {
    fn new(counted: LogCounts, since: Option<Timestamp>) -> Self {
        Self {
            counts: counted.counts,
            partial: counted.complete_since.is_some(),
            since: counted.complete_since.or(since),
        }
    }
}

/// The life of one event.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventLife {
    #[serde(flatten)]
    life: WholeLife,
    /// `null` if it can't be read.
    #[schema(value_type = Option<EventBody>)]
    event: Option<Event>,
}

impl From<WholeLife> for EventLife {
    fn from(mut life: WholeLife) -> Self {
        let event = life.event.take();
        Self { life, event }
    }
}

/// Events that were delivered or died, the latest first
#[utoipa::path(
    get,
    path = "/v1/events",
    security(("token" = ["read"])),
    params(Wanted),
    extensions(("x-scoped" = json!(true))),
    responses(
        (status = 200, description = "A page of the log", body = LogPage),
        (status = 404, description = "There is no event log", body = ErrorBody),
    )
)]
async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<LogPage>, Problem> {
    let wanted = query(wanted)?;
    let (before, limit) = (wanted.before()?, wanted.limit()?);
    let filter = wanted.filter(&caller)?;
    let (log, _) = api.log()?;
    let mut list = log.list(&filter, before, limit).await?;
    if caller.is_scoped() {
        list.entries.iter_mut().for_each(scoped::entry);
    }
    Ok(Json(LogPage {
        events: list.entries,
        next: list.next,
    }))
}

/// How many events of each type were delivered or died in each hour
///
/// Of the last 24 hours, unless `since` is given. If there are more than 5 million entries, the latest are counted.
#[utoipa::path(
    get,
    path = "/v1/events/counts",
    security(("token" = ["read"])),
    params(Wanted),
    extensions(("x-scoped" = json!(true))),
    responses(
        (status = 200, description = "The counts, the oldest hour first", body = Counts),
        (status = 404, description = "There is no event log", body = ErrorBody),
    )
)]
async fn counts(
    State(api): State<Arc<Api>>,
    caller: Caller,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Counts>, Problem> {
    let wanted = query(wanted)?;
    if given(&wanted.before).is_some() || given(&wanted.limit).is_some() {
        return Err(Problem::bad(
            "counts are returned all at once: leave out `before` and `limit`",
        ));
    }
    let mut filter = wanted.filter(&caller)?;
    filter.since.get_or_insert_with(|| Timestamp::now() - COUNTED);
    let (log, _) = api.log()?;
    // Counting reads every entry of the time: one request at a time.
    let _turn = turn(api.counting.lock(), "count events").await?;
    let counted = log.counts(&filter, COUNTED_MAX).await?;
    Ok(Json(Counts::new(counted, filter.since)))
}

/// The whole life of one event: committed, attempts, delivered, dead, replayed
#[utoipa::path(
    get,
    path = "/v1/events/{id}",
    security(("token" = ["read"])),
    params(("id" = String, Path, description = "The event's id")),
    extensions(("x-scoped" = json!(true))),
    responses(
        (status = 200, description = "What happened to it, in order", body = EventLife),
        (status = 404, description = "There is no event with this id, or this database has no event log", body = ErrorBody),
    )
)]
async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<EventLife>, Problem> {
    let id = event_id(id)?;
    let log = api.event_log.as_deref().ok_or_else(no_log)?;
    let life = whole_life(log, &*api.dead_letters, &id).await?;
    // To others, the event does not exist.
    let seen = life.filter(|life| match &life.event {
        Some(event) => caller
            .restrict(Some(own(&event.project_id)), Some(own(&event.user_id)))
            .is_ok(),
        None => !caller.is_scoped(),
    });
    let mut life = seen.ok_or_else(|| {
        let text = format!(
            "there is no event {id}: it was never committed, or its row and its entries were deleted"
        );
        Problem::new(StatusCode::NOT_FOUND, text)
    })?;
    if caller.is_scoped() {
        scoped::life(&mut life);
    }
    Ok(Json(life.into()))
}

/// An event without a project belongs to none.
fn own(id: &Option<String>) -> String {
    id.clone().unwrap_or_default()
}

pub(super) fn no_log() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "there is no event log: set `outbox.event_log.enabled` to true, or `event_log` of a route",
    )
}

fn query(wanted: Result<Query<Wanted>, QueryRejection>) -> Result<Wanted, Problem> {
    wanted
        .map(|Query(wanted)| wanted)
        .map_err(|rejection| Problem::bad(rejection.body_text()))
}

fn given(value: &Option<String>) -> Option<&str> {
    value.as_deref().filter(|value| !value.is_empty())
}

impl Wanted {
    fn filter(&self, caller: &Caller) -> Result<LogFilter, Problem> {
        let text = |value: &Option<String>| given(value).map(str::to_owned);
        let (project_id, user_id) = caller.restrict(text(&self.project_id), text(&self.user_id))?;
        let filter = LogFilter {
            topic: text(&self.topic),
            event_type: text(&self.event_type),
            aggregate_type: text(&self.aggregate_type),
            aggregate_id: text(&self.aggregate_id),
            project_id,
            user_id,
            correlation_id: text(&self.correlation_id),
            status: text(&self.status),
            since: time(&self.since, "since")?,
            until: time(&self.until, "until")?,
        };
        match filter.problem() {
            Some(problem) => Err(Problem::bad(problem)),
            None => Ok(filter),
        }
    }

    fn before(&self) -> Result<Option<Position>, Problem> {
        let Some(before) = given(&self.before) else {
            return Ok(None);
        };
        let position = before.parse().ok().filter(|position| *position > 0);
        let wrong = || Problem::bad(format!("`before` is `{before}`: it must be the `next` of a page"));
        position.ok_or_else(wrong).map(Some)
    }

    fn limit(&self) -> Result<usize, Problem> {
        let Some(limit) = given(&self.limit) else {
            return Ok(LIMIT);
        };
        let count = limit.parse().ok().filter(|count| (1..=LIMIT_MAX).contains(count));
        count.ok_or_else(|| {
            Problem::bad(format!(
                "`limit` is `{limit}`: it must be a number from 1 to {LIMIT_MAX}"
            ))
        })
    }
}

fn time(value: &Option<String>, name: &str) -> Result<Option<Timestamp>, Problem> {
    let Some(value) = given(value) else {
        return Ok(None);
    };
    value.parse().map(Some).map_err(|_| {
        Problem::bad(format!(
            "`{name}` is `{value}`: it must be a time like 2026-01-31T12:00:00Z"
        ))
    })
}
