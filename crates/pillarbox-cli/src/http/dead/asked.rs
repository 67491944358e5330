//! The parameters of a request, checked.

use std::str::FromStr;

use axum::{
    body::Bytes,
    extract::{
        Query,
        rejection::{BytesRejection, QueryRejection},
    },
    http::{HeaderMap, StatusCode, header},
};
use pillarbox_relay::{
    dead::{Actor, DeadFilter, DeadState, ReplayAs},
    event::Seq,
    settlement::DeadReason,
};
use serde::{Deserialize, de::DeserializeOwned};
use utoipa::{IntoParams, ToSchema};

use crate::http::{access::Caller, problem::Problem};

const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1_000;
const BY_CHARS_MAX: usize = 200;
const WHY_CHARS_MAX: usize = 2_000;

/// The query of a list. An empty value counts as missing.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// A topic. `a.>` means all below `a`.
    topic: Option<String>,
    event_type: Option<String>,
    key: Option<String>,
    #[param(value_type = Option<DeadReason>)]
    reason: Option<String>,
    fingerprint: Option<String>,
    /// Died at this time or later.
    #[param(value_type = Option<jiff::Timestamp>)]
    since: Option<String>,
    /// `open` (the default), `replayed`, `discarded` or `all`.
    state: Option<String>,
    /// The `next` of the previous page.
    #[param(value_type = Option<i64>)]
    before: Option<String>,
    /// 100 by default, 1,000 at most.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
}

pub(super) fn query(wanted: Result<Query<Wanted>, QueryRejection>) -> Result<Wanted, Problem> {
    wanted
        .map(|Query(wanted)| wanted)
        .map_err(|rejection| Problem::bad(rejection.body_text()))
}

impl Wanted {
    pub(super) fn filter(&self) -> Result<DeadFilter, Problem> {
        let text = |value: &Option<String>| given(value).map(str::to_owned);
        let filter = DeadFilter {
            ids: Vec::new(),
            fingerprint: text(&self.fingerprint),
            topic: text(&self.topic),
            event_type: text(&self.event_type),
            key: text(&self.key),
            reason: given(&self.reason).map(reason).transpose()?,
            since: read(&self.since, "since", "a time like 2026-01-31T12:00:00Z")?,
        };
        storable(&filter)?;
        Ok(filter)
    }

    /// Open ones by default; `None` means all.
    pub(super) fn state(&self) -> Result<Option<DeadState>, Problem> {
        match given(&self.state) {
            None | Some("open") => Ok(Some(DeadState::Open)),
            Some("replayed") => Ok(Some(DeadState::Replayed)),
            Some("discarded") => Ok(Some(DeadState::Discarded)),
            Some("all") => Ok(None),
            Some(other) => Err(Problem::bad(format!(
                "`{other}` is not a state: use open, replayed, discarded or all"
            ))),
        }
    }

    pub(super) fn before(&self) -> Result<Option<Seq>, Problem> {
        read(&self.before, "before", "the `next` of the previous page")
    }

    pub(super) fn limit(&self) -> Result<usize, Problem> {
        let what = format!("a number from 1 to {LIMIT_MAX}");
        let limit = read(&self.limit, "limit", &what)?.unwrap_or(LIMIT);
        match limit {
            1..=LIMIT_MAX => Ok(limit),
            _ => Err(wrong("limit", &limit.to_string(), &what)),
        }
    }

    /// Groups consist of open letters and are returned all at once.
    pub(super) fn only_a_filter(&self) -> Result<(), Problem> {
        let open = matches!(given(&self.state), None | Some("open"));
        if open && given(&self.before).is_none() && given(&self.limit).is_none() {
            return Ok(());
        }
        Err(Problem::bad(
            "groups consist of open letters and are returned all at once: leave out `state`, `before` and `limit`",
        ))
    }
}

/// Which letters to replay.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Replay {
    #[serde(default)]
    pub(super) filter: DeadFilter,
    #[serde(default, rename = "as")]
    pub(super) send: As,
    /// Who asks for it. A token's own name is recorded in any case.
    by: Option<String>,
    /// The reason.
    why: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// Allows a filter that excludes nothing.
    #[serde(default)]
    pub(super) all: bool,
}

/// `same` keeps the id of the event; `new` makes a copy with a new id.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum As {
    #[default]
    Same,
    New,
}

impl From<As> for ReplayAs {
    fn from(send: As) -> Self {
        match send {
            As::Same => Self::Same,
            As::New => Self::New,
        }
    }
}

/// Which letters to discard.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Discard {
    #[serde(default)]
    pub(super) filter: DeadFilter,
    /// Who asks for it. A token's own name is recorded in any case.
    by: Option<String>,
    /// The reason. It is required.
    #[schema(value_type = String, min_length = 1)]
    why: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// Allows a filter that excludes nothing.
    #[serde(default)]
    pub(super) all: bool,
}

impl Replay {
    pub(super) fn actor(&self, caller: &Caller) -> Result<Actor, Problem> {
        actor(caller, &self.by, &self.why)
    }
}

impl Discard {
    pub(super) fn actor(&self, caller: &Caller) -> Result<Actor, Problem> {
        let actor = actor(caller, &self.by, &self.why)?;
        if actor.why.is_none() {
            return Err(Problem::bad(
                "a discarded event is never delivered: give the reason in `why`",
            ));
        }
        Ok(actor)
    }
}

/// The body. It must be declared as JSON: a form on a page of another site can't do that.
pub(super) fn body<T: DeserializeOwned>(
    headers: &HeaderMap,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<T, Problem> {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if !kind.trim().eq_ignore_ascii_case("application/json") {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send JSON, with the header `content-type: application/json`",
        ));
    }
    let bytes = bytes.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!(
                "the body has more than {} bytes: send several requests",
                super::BODY_BYTES_MAX
            ),
        ),
        status => Problem::new(status, rejection.body_text()),
    })?;
    serde_json::from_slice(&bytes).map_err(|error| Problem::bad(format!("the body can't be read: {error}")))
}

/// A filter that matches everything is more often a mistake than intended.
pub(super) fn bulk_filter<'a>(
    filter: &'a DeadFilter,
    all: bool,
    action: &str,
) -> Result<&'a DeadFilter, Problem> {
    storable(filter)?;
    if all || filter.restricts() {
        return Ok(filter);
    }
    Err(Problem::bad(format!(
        "this would {action} every open dead letter: narrow it with `filter`, or set \"all\": true"
    )))
}

fn actor(caller: &Caller, by: &Option<String>, why: &Option<String>) -> Result<Actor, Problem> {
    let text = |value: &Option<String>, name: &str, chars_max: usize| match value.as_deref().map(str::trim) {
        None | Some("") => Ok(None),
        Some(text) if text.contains('\0') => Err(Problem::bad(format!("`{name}` contains a NUL"))),
        Some(text) if text.chars().count() > chars_max => Err(Problem::bad(format!(
            "`{name}` has more than {chars_max} characters"
        ))),
        Some(text) => Ok(Some(text.to_owned())),
    };
    Ok(Actor {
        by: caller.author(text(by, "by", BY_CHARS_MAX)?),
        why: text(why, "why", WHY_CHARS_MAX)?,
    })
}

fn given(value: &Option<String>) -> Option<&str> {
    value.as_deref().filter(|value| !value.is_empty())
}

fn read<T: FromStr>(value: &Option<String>, name: &str, what: &str) -> Result<Option<T>, Problem> {
    let Some(value) = given(value) else {
        return Ok(None);
    };
    value.parse().map(Some).map_err(|_| wrong(name, value, what))
}

fn wrong(name: &str, value: &str, what: &str) -> Problem {
    Problem::bad(format!("`{name}` is `{value}`: it must be {what}"))
}

fn reason(text: &str) -> Result<DeadReason, Problem> {
    let known = DeadReason::ALL.into_iter().find(|reason| reason.as_str() == text);
    known.ok_or_else(|| {
        let all = DeadReason::ALL.map(DeadReason::as_str).join(", ");
        Problem::bad(format!("`{text}` is not a reason: use one of {all}"))
    })
}

/// PostgreSQL text can't contain a NUL, so no letter would match.
fn storable(filter: &DeadFilter) -> Result<(), Problem> {
    let texts = [
        &filter.fingerprint,
        &filter.topic,
        &filter.event_type,
        &filter.key,
    ];
    let ids = filter.ids.iter().any(|id| id.with_text(|id| id.contains('\0')));
    match ids || texts.into_iter().flatten().any(|text| text.contains('\0')) {
        true => Err(Problem::bad("a text of the filter contains a NUL: leave it out")),
        false => Ok(()),
    }
}
