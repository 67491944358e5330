//! The metrics of a relay, for Prometheus.
//!
//! ```text
//! engine ──▶ recorded (counters, histograms) ──┐
//! engine ──▶ progress (what is up and down) ───┼──▶ Exporter ──▶ text
//! database ──▶ sample, every few seconds ──────┘
//! ```
//!
//! A scrape reads memory only; it never waits for the database. Every label has few values: sinks and classes of the
//! configuration, kinds of errors, reasons of deaths, and at most 50 event types.
//! docs/METRICS.md describes each metric.

pub(crate) mod recorded;
pub(crate) mod sampler;
mod state;
mod text;

use std::sync::Arc;

use prometheus_client::{encoding::text::encode, registry::Registry};

use self::state::State;
use crate::{engine::Progress, scale::ScaleLimits};

/// The prefix of the metrics' names unless the configuration says otherwise.
pub const PREFIX: &str = "outbox";

/// Writes the metrics of one relay.
pub struct Exporter {
    registry: Registry,
}

impl Exporter {
    /// `prefix` comes before every name. See [`metric_prefix`].
    pub fn new(prefix: &str, progress: Arc<Progress>, scale: ScaleLimits) -> Self {
        let mut registry = Registry::with_prefix(prefix);
        progress.recorded.register(&mut registry);
        registry.register_collector(Box::new(State { progress, scale }));
        Self { registry }
    }

    /// In the OpenMetrics format.
    pub fn open_metrics(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut out, &self.registry);
        out
    }

    /// In the older text format of Prometheus, for programs that don't ask for OpenMetrics.
    pub fn text(&self) -> String {
        text::plain(&self.open_metrics())
    }
}

/// Makes a prefix from the configured text: dots become underscores. `Err`: why it can't be one.
pub fn metric_prefix(text: &str) -> Result<String, &'static str> {
    const LENGTH_MAX: usize = 64;
    let prefix = text.replace('.', "_");
    let first_is_letter = prefix
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let plain = prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !first_is_letter {
        Err("must begin with a letter")
    } else if !plain {
        Err("may contain letters, digits, underscores and dots only")
    } else if prefix.len() > LENGTH_MAX {
        Err("may have at most 64 characters")
    } else {
        Ok(prefix)
    }
}

#[cfg(test)]
mod tests;
