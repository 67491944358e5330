//! What an independent consumer sees in a stream: nats-py, run by `python/consume.py`.

use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

use crate::servers;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/consume.py");

/// The script's result. Numbers of messages, except `events`, which counts distinct event ids.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Verdict {
    pub expected: u64,
    pub messages: u64,
    pub events: u64,
    pub duplicated: u64,
    pub without_headers: u64,
    pub unreadable: u64,
    pub order_violations: u64,
    pub examples: Vec<String>,
    /// Every expected event once, with its headers, in order per key.
    pub whole: bool,
}

/// Reads the whole stream and checks it. Payloads are JSON objects whose `n` counts up within a key. Waits up
/// to a minute for `expected` events. `None`: nats-py is not installed.
///
/// # Panics
/// If the script fails without a verdict.
pub async fn consume(url: &str, stream: &str, expected: u64) -> Option<Verdict> {
    consume_within(url, stream, expected, Duration::from_secs(60)).await
}

/// As [`consume`], with another timeout.
pub async fn consume_within(url: &str, stream: &str, expected: u64, patience: Duration) -> Option<Verdict> {
    let python = servers::python()?;
    let output = Command::new(python)
        .args([
            SCRIPT,
            url,
            stream,
            &expected.to_string(),
            &patience.as_secs_f64().to_string(),
        ])
        .kill_on_drop(true)
        .output()
        .await
        .unwrap_or_else(|error| panic!("cannot run Python: {error}"));
    let verdict = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{SCRIPT} gave no verdict ({error}): {}",
            String::from_utf8_lossy(&output.stderr)
        )
    });
    Some(verdict)
}
