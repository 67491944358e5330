//! What an independent consumer sees in a topic: confluent-kafka, run by `python/consume_kafka.py`.

use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

use crate::servers;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/consume_kafka.py");

/// The script's result. Numbers of messages, except `events`, which counts distinct event ids, and `keys`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Verdict {
    pub expected: u64,
    pub messages: u64,
    pub events: u64,
    pub keys: u64,
    /// Copies. Kafka keeps everything it gets, so these are not a fault.
    pub duplicated: u64,
    pub without_headers: u64,
    pub wrong_key: u64,
    pub unreadable: u64,
    pub order_violations: u64,
    pub examples: Vec<String>,
    /// Every expected event, with its headers and its key, in order per key.
    pub whole: bool,
}

/// Reads the whole topic and checks it; optionally only what is committed. Payloads are JSON objects whose
/// `n` counts up within a key. Waits up to a minute for `expected` events. `None`: confluent-kafka is not
/// installed.
///
/// # Panics
/// If the script fails without a verdict.
pub async fn consume(bootstrap: &str, topic: &str, expected: u64, committed: bool) -> Option<Verdict> {
    consume_within(bootstrap, topic, expected, committed, Duration::from_secs(60)).await
}

/// As [`consume`], with another timeout.
pub async fn consume_within(
    bootstrap: &str,
    topic: &str,
    expected: u64,
    committed: bool,
    patience: Duration,
) -> Option<Verdict> {
    let python = servers::kafka_python()?;
    let isolation = if committed {
        "read_committed"
    } else {
        "read_uncommitted"
    };
    let output = Command::new(python)
        .args([SCRIPT, bootstrap, topic, &expected.to_string(), isolation])
        .arg(patience.as_secs_f64().to_string())
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
