//! The log lines about refused requests. A client that tries again and again must not fill the log.

use std::sync::{Arc, Mutex};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{Method, StatusCode},
    middleware::Next,
    response::Response,
};
use pillarbox_relay::log::Sampler;
use tokio::time::Instant;

use super::{Caller, limits};
use crate::http::connections::Peer;

#[derive(Default)]
pub(in crate::http) struct Refusals(Mutex<Sampler>);

/// The layer around everything that refuses requests: the checks of names and pages, the gate, and handlers that apply
/// a scope.
pub(in crate::http) async fn log(
    State(refusals): State<Arc<Refusals>>,
    request: Request,
    next: Next,
) -> Response {
    let method = name(request.method());
    let path = request.extensions().get::<MatchedPath>().cloned();
    let peer = request.extensions().get::<Peer>();
    let address = peer.map_or_else(String::new, |peer| limits::network(peer.address.ip()));
    let answer = next.run(request).await;
    let (status, caller) = (answer.status(), answer.extensions().get::<Caller>());
    if is_refusal(status, caller) {
        let refusal = Refusal {
            status: status.as_u16(),
            who: caller
                .filter(|caller| caller.known)
                .map_or(&address, Caller::name),
            address: &address,
            method,
            path: path.as_ref().map_or("unknown", MatchedPath::as_str),
        };
        refusals.log(&refusal, Instant::now());
    }
    answer
}

/// A handler's 400 is about what was asked. Without a caller, the request did not come so far.
fn is_refusal(status: StatusCode, caller: Option<&Caller>) -> bool {
    match status {
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::MISDIRECTED_REQUEST
        | StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::BAD_REQUEST => caller.is_none(),
        _ => false,
    }
}

struct Refusal<'a> {
    status: u16,
    /// The name of a known caller, or the address.
    who: &'a str,
    address: &'a str,
    method: &'static str,
    /// The one in the document, so that nothing of the request gets into the log.
    path: &'a str,
}

impl Refusals {
    fn log(&self, refusal: &Refusal<'_>, now: Instant) {
        let Refusal {
            status,
            who,
            address,
            method,
            path,
        } = *refusal;
        let Ok(mut sampler) = self.0.lock() else { return };
        if let Some(not_logged) = sampler.next(&format!("{status} {who}"), now) {
            tracing::warn!(
                status,
                who,
                address,
                method,
                path,
                not_logged,
                "outbox_request_refused"
            );
        }
    }
}

/// A client can make up methods.
fn name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_asked_wrongly_is_no_refusal() {
        let caller = Caller::anyone();
        for status in [401, 403, 421, 429] {
            let status = StatusCode::from_u16(status).unwrap();
            assert!(
                is_refusal(status, None) && is_refusal(status, Some(&caller)),
                "{status}"
            );
        }
        assert!(is_refusal(StatusCode::BAD_REQUEST, None));
        assert!(!is_refusal(StatusCode::BAD_REQUEST, Some(&caller)));
        for status in [200, 404, 409, 413, 500, 503] {
            assert!(
                !is_refusal(StatusCode::from_u16(status).unwrap(), None),
                "{status}"
            );
        }
    }
}
