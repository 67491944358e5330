//! Tokens that an identity provider signs. Only its public keys are known here.

mod keys;
mod signatures;
mod source;

use axum::http::StatusCode;
use jiff::Timestamp;
use jsonwebtoken::{Header, Validation, decode, decode_header, errors::ErrorKind};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use self::{
    keys::Key,
    source::{Source, Unknown},
};
use super::{Caller, Role, names};
use crate::{config::JwtSettings, http::problem::Problem};

pub(super) struct Jwt {
    settings: JwtSettings,
    source: Source,
}

impl Jwt {
    pub(super) fn new(settings: &JwtSettings) -> Self {
        signatures::install();
        Self {
            source: Source::new(settings),
            settings: settings.clone(),
        }
    }

    /// Whether a text could be one: header, claims and signature.
    pub(super) fn looks_like_one(token: &str) -> bool {
        token.split('.').count() == 3
    }

    /// Keeps the keys up to date, until `stop`.
    pub(super) async fn refresh(&self, stop: CancellationToken) {
        self.source.refresh(stop).await;
    }

    pub(super) async fn caller(&self, token: &str) -> Result<Caller, Problem> {
        let header = header(token)?;
        let id = header.kid.as_deref();
        let keys = self.source.with(id).await.map_err(|unknown| match unknown {
            Unknown::Key => {
                Problem::unauthorized("the issuer has no such key: this token is not its own, or is too old")
            }
            Unknown::Keys => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the keys of the tokens' issuer can't be read; try again",
            ),
        })?;
        let claims = keys.find(id).map(|key| claims(&self.settings, key, token));
        let claims = claims.unwrap_or(Err(ErrorKind::InvalidSignature));
        let claims = claims.map_err(|kind| refusal(&kind))?;
        caller(&self.settings, &claims).map_err(Problem::unauthorized)
    }
}

/// The header of a token. `crit` lists extensions that a receiver must understand or refuse (RFC 7515); we know none.
fn header(token: &str) -> Result<Header, Problem> {
    let header = decode_header(token).map_err(|error| refusal(error.kind()))?;
    match header.crit {
        None => Ok(header),
        Some(_) => Err(Problem::unauthorized(
            "this token is refused: its header has `crit`, and no extension is known here",
        )),
    }
}

/// The claims of a token that this key has signed and that is for us, now.
fn claims(settings: &JwtSettings, key: &Key, token: &str) -> Result<Map<String, Value>, ErrorKind> {
    // The key decides about the algorithm, never the token.
    let mut validation = Validation::new(key.algorithm);
    validation.leeway = settings.leeway.as_secs();
    validation.validate_nbf = true;
    validation.set_issuer(&[&settings.issuer]);
    validation.set_audience(&[&settings.audience]);
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    match decode(token, &key.key, &validation) {
        Ok(token) => Ok(token.claims),
        Err(error) => Err(error.into_kind()),
    }
}

/// Says what is wrong, and nothing of the token.
fn refusal(kind: &ErrorKind) -> Problem {
    let why = match kind {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidIssuer => "it is of another issuer",
        ErrorKind::InvalidAudience => "it is for another audience",
        ErrorKind::InvalidSignature => "its signature is wrong",
        ErrorKind::InvalidAlgorithm => "its algorithm is not that of the issuer's key",
        ErrorKind::MissingRequiredClaim(_) => "it lacks `exp`, `iss` or `aud`",
        _ => "it can't be read",
    };
    Problem::unauthorized(format!("this token is refused: {why}"))
}

/// The caller that verified claims describe.
fn caller(settings: &JwtSettings, claims: &Map<String, Value>) -> Result<Caller, String> {
    let name = names::of_jwt(word(claims, &settings.name_claim)?);
    let roles = roles(find(claims, &settings.roles_claim));
    let expires = expiry(settings, claims);
    // A claim of its own: a word in the claims of the scope could be somebody's name.
    let unscoped = settings.unscoped_claim.as_deref();
    if unscoped.and_then(|claim| find(claims, claim)) == Some(&Value::Bool(true)) {
        return Ok(Caller::new(&name, &roles, None, None).until(expires));
    }
    let scope = |claim: &Option<String>| claim.as_deref().map(|claim| word(claims, claim)).transpose();
    let (project, user) = (scope(&settings.project_claim)?, scope(&settings.user_claim)?);
    Ok(Caller::new(&name, &roles, project, user).until(expires))
}

/// The first second in which this token is refused. A time beyond those that can be written counts as never.
fn expiry(settings: &JwtSettings, claims: &Map<String, Value>) -> Option<Timestamp> {
    let last = claims.get("exp")?.as_f64()?.ceil() + settings.leeway.as_secs_f64();
    // Numbers that do not fit become the largest or the smallest one.
    Timestamp::from_second((last + 1.0) as i64).ok()
}

/// A claim that must be there.
fn word<'a>(claims: &'a Map<String, Value>, claim: &str) -> Result<&'a str, String> {
    let found = find(claims, claim).and_then(Value::as_str);
    found.filter(|text| names::is_plain(text)).ok_or_else(|| {
        let rule = names::rule();
        format!("this token is refused: its claim `{claim}` is missing, or is not {rule}")
    })
}

fn roles(claim: Option<&Value>) -> Vec<Role> {
    let words: Vec<&str> = match claim {
        Some(Value::String(text)) => text.split_whitespace().collect(),
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let known = [Role::Produce, Role::Read, Role::Operate];
    known
        .into_iter()
        .filter(|role| words.contains(&role.as_str()))
        .collect()
}

/// A claim by its whole name, or else by a path with dots.
fn find<'a>(claims: &'a Map<String, Value>, claim: &str) -> Option<&'a Value> {
    if let Some(found) = claims.get(claim) {
        return Some(found);
    }
    let mut steps = claim.split('.');
    let first = claims.get(steps.next()?)?;
    steps.try_fold(first, |value, step| value.get(step))
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
