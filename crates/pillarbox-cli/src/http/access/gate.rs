//! Decides about each request before its handler runs: who sends it, and whether that caller may.

use std::sync::Arc;

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, Method, StatusCode},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Caller,
    policy::{Needs, Policy},
    refusals::Refusals,
    tokens::{Shown, Tokens, shown},
};
use crate::{
    config::HttpSettings,
    http::{connections::Peer, problem::Problem},
};

pub(crate) struct Gate {
    policy: Policy,
    /// `None`: nobody needs a token.
    credentials: Option<Credentials>,
    refusals: Refusals,
}

struct Credentials {
    tokens: Tokens,
}

impl Gate {
    pub(in crate::http) fn new(document: &Value, settings: Option<&HttpSettings>) -> Self {
        let needed = settings.filter(|settings| settings.needs_credentials());
        Self {
            policy: Policy::of(document),
            credentials: needed.map(|settings| Credentials {
                tokens: Tokens::new(&settings.tokens),
            }),
            refusals: Refusals::default(),
        }
    }

    async fn admit(
        &self,
        path: Option<&str>,
        method: &Method,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> Result<Caller, Problem> {
        let needs = self.policy.needs(path, method);
        if needs == Needs::Nothing {
            return Ok(Caller::nobody());
        }
        let refused = |status: StatusCode, who: &str| {
            let path = path.unwrap_or("unknown");
            self.refusals
                .refused(status, who, method.as_str(), path, Instant::now());
        };
        let caller = match &self.credentials {
            None => Caller::anyone(),
            Some(credentials) => credentials.caller(headers).inspect_err(|problem| {
                let address = peer.map(|peer| peer.address.ip().to_string());
                refused(problem.status(), address.as_deref().unwrap_or("unknown"));
            })?,
        };
        allowed(&caller, needs).inspect_err(|problem| refused(problem.status(), caller.name()))?;
        Ok(caller)
    }
}

impl Credentials {
    fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        match shown(headers) {
            Shown::Token(token) => self.tokens.caller(token).ok_or_else(|| {
                Problem::unauthorized("this token is not known: it may have been replaced or removed")
            }),
            Shown::Nothing => Err(Problem::unauthorized(
                "send a token, with the header `Authorization: Bearer …`",
            )),
            Shown::Unreadable => Err(Problem::unauthorized(
                "the header `Authorization` can't be read: send it once, as `Bearer …`",
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

/// The layer in front of all routes. It gives the request its [`Caller`].
pub(in crate::http) async fn enforce(
    State(gate): State<Arc<Gate>>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let peer = request.extensions().get::<Peer>().cloned();
    let path = path.as_ref().map(MatchedPath::as_str);
    match gate
        .admit(path, request.method(), request.headers(), peer.as_ref())
        .await
    {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Role;

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
}
