//! Decides about each request before its handler runs: who sends it, and whether that caller may.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, Method, StatusCode},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Caller,
    jwt::Jwt,
    limits::{self, Limiter},
    names,
    policy::{Needs, Policy},
    tokens::{Shown, Tokens, shown},
};
use crate::{
    config::{HttpSettings, Role},
    http::{connections::Peer, problem::Problem},
};

pub(crate) struct Gate {
    policy: Policy,
    /// `None`: nobody needs a token.
    credentials: Option<Credentials>,
    /// Of each known caller. `None`: there is no limit.
    limit: Option<Limiter>,
    /// Of each address with unknown callers.
    refused: Limiter,
}

struct Credentials {
    tokens: Tokens,
    jwt: Option<Jwt>,
    /// Of a client with a certificate and without a token.
    certified: Vec<Role>,
}

impl Gate {
    pub(in crate::http) fn new(document: &Value, settings: Option<&HttpSettings>) -> Self {
        let needed = settings.filter(|settings| settings.needs_credentials());
        Self {
            policy: Policy::of(document),
            credentials: needed.map(|settings| Credentials {
                tokens: Tokens::new(&settings.tokens),
                jwt: settings.jwt.as_ref().map(Jwt::new),
                certified: settings
                    .tls
                    .as_ref()
                    .map_or_else(Vec::new, |tls| tls.client_roles.clone()),
            }),
            limit: settings.and_then(|settings| settings.rate).map(Limiter::new),
            refused: Limiter::new(limits::REFUSED),
        }
    }

    /// Keeps up to date what it knows about callers, until `stop`.
    pub(in crate::http) async fn refresh(self: Arc<Self>, stop: CancellationToken) {
        if let Some(jwt) = self
            .credentials
            .as_ref()
            .and_then(|credentials| credentials.jwt.as_ref())
        {
            jwt.refresh(stop).await;
        }
    }

    /// The caller, if it is known who it is, and whether it may.
    async fn admit(
        &self,
        path: Option<&str>,
        method: &Method,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> (Option<Caller>, Result<(), Problem>) {
        let needs = self.policy.needs(path, method);
        if needs == Needs::Nothing {
            return (Some(Caller::nobody()), Ok(()));
        }
        let now = Instant::now();
        let caller = match &self.credentials {
            None => Caller::anyone(),
            Some(credentials) => match credentials.caller(headers, peer).await {
                Ok(caller) => caller,
                Err(problem) => return (None, Err(self.unknown(problem, peer, now))),
            },
        };
        let limited = self
            .limit
            .as_ref()
            .map_or(Ok(()), |limit| limit.take(caller.name(), now));
        let may = limited.map_err(too_many).and_then(|()| allowed(&caller, needs));
        (Some(caller), may)
    }

    /// The answer to a caller that is not known. Each one is charged to its address, unless the issuer is to blame.
    fn unknown(&self, problem: Problem, peer: Option<&Peer>, now: Instant) -> Problem {
        if problem.status() == StatusCode::SERVICE_UNAVAILABLE {
            return problem;
        }
        let address = peer.map_or_else(String::new, |peer| limits::network(peer.address.ip()));
        let charged = self.refused.take(&address, now);
        charged.map_or_else(too_many, |()| problem)
    }
}

fn too_many(wait: Duration) -> Problem {
    let text = "too many requests: send them more slowly (`outbox.http.rate_limit`)";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, text).retry_after(wait)
}

impl Credentials {
    async fn caller(&self, headers: &HeaderMap, peer: Option<&Peer>) -> Result<Caller, Problem> {
        let certified = peer.and_then(|peer| peer.certified.as_deref());
        match (shown(headers), certified) {
            (Shown::Token(token), _) => self.of_token(token).await,
            (Shown::Nothing, Some(name)) if !self.certified.is_empty() => {
                let name = names::of_certificate(name);
                Ok(Caller::new(&name, &self.certified, None, None))
            }
            (Shown::Nothing, _) => Err(Problem::unauthorized(
                "send a token, with the header `Authorization: Bearer …`",
            )),
            (Shown::Unreadable, _) => Err(Problem::unauthorized(
                "the header `Authorization` can't be read: send it once, as `Bearer …`",
            )),
        }
    }

    async fn of_token(&self, token: &str) -> Result<Caller, Problem> {
        if let Some(caller) = self.tokens.caller(token) {
            return Ok(caller);
        }
        match &self.jwt {
            Some(jwt) if Jwt::looks_like_one(token) => jwt.caller(token).await,
            _ => Err(Problem::unauthorized(
                "this token is not known: it may have been replaced or removed",
            )),
        }
    }
}

fn allowed(caller: &Caller, needs: Needs) -> Result<(), Problem> {
    let forbidden = |text: String| Err(Problem::new(StatusCode::FORBIDDEN, text));
    match needs {
        Needs::Nothing | Needs::Caller => Ok(()),
        Needs::Closed => forbidden("this operation is closed: its description names no role".into()),
        Needs::Role { role, .. } if !caller.may(role) => {
            let role = role.as_str();
            forbidden(format!("this needs the role `{role}`, which the token does not have"))
        }
        Needs::Role { scoped: false, .. } if caller.is_scoped() => forbidden(
            "this answer covers all projects and users, and the token is only for some: use a token without `project` and `user`".into(),
        ),
        Needs::Role { .. } => Ok(()),
    }
}

/// The layer in front of all routes. It gives the request and the answer their [`Caller`].
pub(in crate::http) async fn enforce(
    State(gate): State<Arc<Gate>>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let peer = request.extensions().get::<Peer>().cloned();
    let path = path.as_ref().map(MatchedPath::as_str);
    let (caller, may) = gate
        .admit(path, request.method(), request.headers(), peer.as_ref())
        .await;
    if let Some(caller) = &caller {
        request.extensions_mut().insert(caller.clone());
    }
    let mut answer = match may {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    // For the log.
    if let Some(caller) = caller {
        answer.extensions_mut().insert(caller);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_needs_the_role_and_no_scope_where_the_answer_has_none() {
        let needs = |scoped| Needs::Role {
            role: Role::Read,
            scoped,
        };
        let caller = |role, project| Caller::new("ci", &[role], project, None);
        assert!(allowed(&caller(Role::Read, None), needs(false)).is_ok());
        assert!(allowed(&caller(Role::Produce, None), needs(false)).is_err());
        assert!(allowed(&caller(Role::Read, Some("a")), needs(false)).is_err());
        assert!(allowed(&caller(Role::Read, Some("a")), needs(true)).is_ok());
        assert!(allowed(&Caller::anyone(), Needs::Closed).is_err());
    }
    #[test]
    fn an_issuer_that_is_away_is_not_charged_to_the_address() {
        let gate = Gate::new(&Value::Null, None);
        let now = Instant::now();
        let status = |problem: fn() -> Problem| gate.unknown(problem(), None, now).status().as_u16();
        let away = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the issuer is away");
        for _ in 0..2 * limits::REFUSED.burst {
            assert_eq!(status(away), 503);
        }
        let wrong = || Problem::unauthorized("wrong");
        for _ in 0..limits::REFUSED.burst {
            assert_eq!(status(wrong), 401);
        }
        assert_eq!(status(wrong), 429);
        assert_eq!(status(away), 503);
    }
}
