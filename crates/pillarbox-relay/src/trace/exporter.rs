//! Sends waiting spans to the collector, one request at a time.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use reqwest::{
    StatusCode,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{
    TraceError, Traces,
    answer::{self, Rejected},
    otlp::{self, Spans},
};
use crate::http_client;

/// Spans wait this long for others, unless they fill a request.
const LINGER: Duration = Duration::from_secs(1);
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// The wait after the collector did not answer. It doubles with each failure.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How long a stopping relay sends its last spans.
const LAST_SPANS: Duration = Duration::from_secs(2);
/// More of an answer is not read.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

pub(super) struct Collector {
    endpoint: Url,
    headers: HeaderMap,
    /// What all spans have in common, encoded.
    resource: Vec<u8>,
    client: reqwest::Client,
    accepted: AtomicU64,
}

/// Why the collector did not accept spans.
enum Refusal {
    /// It may accept the same request later.
    Away(String),
    /// It does not accept this request.
    Final(String),
}

impl Collector {
    pub(super) fn new(endpoint: Url, mut headers: HeaderMap, resource: Vec<u8>) -> Result<Self, TraceError> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        Ok(Self {
            endpoint,
            headers,
            resource,
            client: http_client::client(REQUEST_TIME_MAX)?,
            accepted: AtomicU64::new(0),
        })
    }

    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Returns which of them it dropped.
    async fn send(&self, spans: &Spans) -> Result<Rejected, Refusal> {
        let request = self
            .client
            .post(self.endpoint.clone())
            .headers(self.headers.clone())
            .body(otlp::request(&self.resource, spans));
        let answer = request
            .send()
            .await
            .map_err(|error| Refusal::Away(http_client::words(error)))?;
        let status = answer.status();
        let body = http_client::body(answer, ANSWER_BYTES_MAX).await;
        if status.is_success() {
            let mut rejected = answer::rejected(&body.unwrap_or_default());
            rejected.spans = rejected.spans.min(spans.count);
            self.accepted
                .fetch_add(spans.count - rejected.spans, Ordering::Relaxed);
            return Ok(rejected);
        }
        let why = format!("it answered {}", status.as_u16());
        // As the specification of OTLP says.
        match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(Refusal::Away(why)),
            _ => Err(Refusal::Final(why)),
        }
    }
}

/// What the exporter remembers between two requests.
#[derive(Default)]
struct Exporting {
    /// The request that must be sent next.
    unsent: Option<Spans>,
    outage: Option<Outage>,
    /// The collector dropped some spans of the latest request that it accepted.
    rejecting: bool,
}

/// The collector accepts no spans.
struct Outage {
    since: Instant,
    /// Spans that were dropped before it.
    dropped: u64,
    wait: Duration,
}

impl Traces {
    /// Sends spans until the relay has stopped, then the last ones within [`LAST_SPANS`].
    pub(crate) async fn export(&self, stop: &CancellationToken) {
        let mut exporting = Exporting::default();
        loop {
            let away = exporting.outage.as_ref().map(|outage| outage.wait);
            tokio::select! {
                () = self.queue.full(), if away.is_none() => {}
                () = tokio::time::sleep(away.unwrap_or(LINGER)) => {}
                () = stop.cancelled() => break,
            }
            tokio::select! {
                () = self.send_waiting(&mut exporting) => {}
                () = stop.cancelled() => break,
            }
        }
        let last = self.send_waiting(&mut exporting);
        let _ = tokio::time::timeout(LAST_SPANS, last).await;
        for spans in exporting
            .unsent
            .into_iter()
            .chain(std::iter::from_fn(|| self.queue.take()))
        {
            self.queue.drop_spans(spans.count);
        }
    }

    /// Returns when no spans wait any more, or when the collector is away.
    async fn send_waiting(&self, exporting: &mut Exporting) {
        loop {
            if exporting.unsent.is_none() {
                exporting.unsent = self.queue.take();
            }
            let Some(spans) = &exporting.unsent else { return };
            match self.collector.send(spans).await {
                Ok(rejected) => self.accepted(exporting, &rejected),
                Err(Refusal::Away(why)) => return self.refused(exporting, &why),
                Err(Refusal::Final(why)) => {
                    self.queue.drop_spans(spans.count);
                    self.refused(exporting, &why);
                }
            }
            if let Some(done) = exporting.unsent.take() {
                self.queue.sent(&done);
            }
        }
    }

    fn accepted(&self, exporting: &mut Exporting, rejected: &Rejected) {
        if let Some(outage) = exporting.outage.take() {
            tracing::info!(
                outage_seconds = outage.since.elapsed().as_secs(),
                dropped = self.dropped() - outage.dropped,
                "the trace collector accepts spans again"
            );
        }
        self.queue.drop_spans(rejected.spans);
        let before = std::mem::replace(&mut exporting.rejecting, rejected.spans > 0);
        if exporting.rejecting && !before {
            let (spans, why) = (rejected.spans, &*rejected.why);
            tracing::warn!(spans, why, "the trace collector rejects some spans");
        }
    }

    /// Logs it once, not at every request.
    fn refused(&self, exporting: &mut Exporting, why: &str) {
        match &mut exporting.outage {
            Some(outage) => outage.wait = (outage.wait * 2).min(RETRY_MAX),
            None => {
                tracing::warn!(
                    why,
                    "the trace collector accepts no spans; events are delivered all the same"
                );
                exporting.outage = Some(Outage {
                    since: Instant::now(),
                    dropped: self.dropped(),
                    wait: RETRY,
                });
            }
        }
    }
}
