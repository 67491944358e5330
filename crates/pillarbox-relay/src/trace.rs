//! Traces: the relay's spans of sampled events, sent to a collector by OTLP over HTTP.
//!
//! ```text
//! producer's span
//! └─ deliver <topic>          from the write of the event to its delivery or death
//!    ├─ wait                  until the first attempt that counts
//!    ├─ publish <topic>       an attempt that failed
//!    └─ publish <topic>       the attempt that succeeded
//!       └─ consumer's span
//! ```
//!
//! The spans are written when a sink has answered; until then nothing is kept for them. The id of `deliver` is computed
//! from the event, so that all attempts are below it, whichever relay made them. The message that a sink sends names
//! its `publish` span as its parent; sinks and envelopes know nothing about it. An event that is not traced is sent
//! with its own headers, unchanged.
//!
//! No event waits for the collector. While it is away, spans wait within a limit. Beyond it, events are not traced.

mod answer;
mod exporter;
mod otlp;
mod parent;
mod queue;
mod sending;

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use thiserror::Error;
use url::Url;

pub(crate) use self::sending::Sending;
use self::{
    otlp::{Spans, Value},
    parent::EventTrace,
    queue::Queue,
    sending::Way,
};
use crate::{
    event::StoredEvent,
    http_client::{self, HeaderError, HeaderMap},
    settlement::DeadReason,
};

/// Spans that wait for the collector, in bytes. An event has about 1 kB of them.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What an event that is delivered at once has: `deliver`, `wait` and `publish`.
const SPANS_OF_AN_EVENT: u64 = 3;
/// The path of OTLP over HTTP, below the collector's address.
const PATH: &str = "v1/traces";

/// Where the spans go, and of which events there are any.
#[derive(Clone)]
pub struct Options {
    endpoint: Url,
    headers: HeaderMap,
    /// The name of this service in traces.
    pub service_name: String,
    /// Which share of the events without a trace of their own begins one, from 0 to 1.
    pub sample_ratio: f64,
    /// The relay's name.
    pub relay: String,
    /// The messaging system of each sink: `nats`.
    pub systems: BTreeMap<Arc<str>, &'static str>,
}

/// Why spans can't be exported. It never shows the address or a header, because they may contain secrets.
#[derive(Debug, Error)]
pub enum TraceError {
    #[error("use the address of an OpenTelemetry collector for OTLP over HTTP: http://host:4318")]
    Endpoint,
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error(transparent)]
    Client(#[from] http_client::HttpClientError),
}

impl Options {
    /// `endpoint` is the collector's address, with or without `/v1/traces`. The headers are sent with each request.
    pub fn new<'a>(
        endpoint: &str,
        headers: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Result<Self, TraceError> {
        let mut endpoint = Url::parse(endpoint).map_err(|_| TraceError::Endpoint)?;
        if !matches!(endpoint.scheme(), "http" | "https") || endpoint.host_str().is_none_or(str::is_empty) {
            return Err(TraceError::Endpoint);
        }
        let path = endpoint.path().trim_end_matches('/').to_owned();
        if !path.ends_with(PATH) {
            endpoint.set_path(&format!("{path}/{PATH}"));
        }
        Ok(Self {
            endpoint,
            headers: http_client::secret_headers(headers)?,
            service_name: "pillarbox".into(),
            sample_ratio: 0.0,
            relay: String::new(),
            systems: BTreeMap::new(),
        })
    }
}

/// The traces of one relay.
pub struct Traces {
    sample_ratio: f64,
    systems: BTreeMap<Arc<str>, &'static str>,
    queue: Queue,
    collector: exporter::Collector,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl Traces {
    /// Sends nothing until a relay with these traces runs.
    pub fn new(options: Options) -> Result<Self, TraceError> {
        Self::with_room_for(options, WAITING_BYTES_MAX)
    }

    fn with_room_for(options: Options, waiting_bytes_max: usize) -> Result<Self, TraceError> {
        let resource = otlp::resource(&[
            ("service.name", Value::Text(&options.service_name)),
            ("service.version", Value::Text(env!("CARGO_PKG_VERSION"))),
            ("pillarbox.relay", Value::Text(&options.relay)),
        ]);
        Ok(Self {
            sample_ratio: options.sample_ratio,
            systems: options.systems,
            queue: Queue::new(waiting_bytes_max),
            collector: exporter::Collector::new(options.endpoint, options.headers, resource)?,
        })
    }

    /// A batch is about to be sent. `None`: none of its events is traced. `seed` must be different each time. `trial`: it
    /// tries destinations that accept nothing.
    pub(crate) fn begin<'a>(
        self: &Arc<Self>,
        sink: &Arc<str>,
        batch: impl ExactSizeIterator<Item = &'a StoredEvent>,
        now: Timestamp,
        seed: u64,
        trial: bool,
    ) -> Option<Sending> {
        Sending::begin(self, sink, batch, now, seed, trial)
    }

    /// An event died without an attempt.
    pub(crate) fn died_untried(&self, stored: &StoredEvent, reason: DeadReason, error: &str, now: Timestamp) {
        let Some(trace) = EventTrace::of(&stored.event, self.sample_ratio) else {
            return;
        };
        if !self.queue.has_room() {
            return self.queue.drop_spans(1);
        }
        let mut spans = Spans::default();
        Way::new(stored, trace, None).delivery(now, Some((reason, error)), &mut spans);
        self.queue.push(&spans);
    }

    /// How many spans were not exported: there was no room for them, or the collector did not accept them.
    pub(crate) fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// How many spans the collector has accepted.
    pub(crate) fn exported(&self) -> u64 {
        self.collector.accepted()
    }
}
