//! Traces.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Tracing {
    /// The address of an OpenTelemetry collector for OTLP over HTTP: `http://127.0.0.1:4318`. `/v1/traces` is
    /// added. Without it there are no traces.
    pub otlp_endpoint: Option<String>,
    /// HTTP headers for the collector, such as `authorization`. Their values are never shown or logged.
    pub headers: BTreeMap<String, String>,
    /// The name of the relay's service in traces.
    pub service_name: String,
    /// Which share of the events without a valid `traceparent` begins a trace at the relay, from 0 to 1. For
    /// all other events, the producer's `traceparent` says whether they are traced.
    pub sample_ratio: f64,
}

impl Default for Tracing {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            headers: BTreeMap::new(),
            service_name: "pillarbox".into(),
            sample_ratio: 0.0,
        }
    }
}
