//! The log lines about refused requests. A client that tries again and again must not fill the log.

use std::sync::Mutex;

use axum::http::StatusCode;
use pillarbox_relay::log::Sampler;
use tokio::time::Instant;

#[derive(Default)]
pub(super) struct Refusals(Mutex<Sampler>);

impl Refusals {
    /// `who` is the caller's name, or the address of one that is not known. `path` is the one in the document, so that
    /// nothing of the request gets into the log.
    pub(super) fn refused(&self, status: StatusCode, who: &str, method: &str, path: &str, now: Instant) {
        let kind = format!("{} {who}", status.as_u16());
        let Ok(mut sampler) = self.0.lock() else { return };
        if let Some(not_logged) = sampler.next(&kind, now) {
            let status = status.as_u16();
            tracing::warn!(status, who, method, path, not_logged, "outbox_request_refused");
        }
    }
}
