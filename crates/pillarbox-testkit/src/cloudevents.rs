//! What the official SDK of CloudEvents reads in a message, through `python/read_cloudevents.py`.

use std::{collections::BTreeMap, process::Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{io::AsyncWriteExt, process::Command};

use crate::servers;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/read_cloudevents.py");

/// A message as it is in Kafka.
#[derive(Debug, Clone, Serialize)]
pub struct Message {
    /// `binary` or `structured`.
    pub mode: &'static str,
    pub headers: BTreeMap<String, String>,
    pub key: String,
    pub value: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Understood {
    pub attributes: BTreeMap<String, String>,
    pub data: Value,
}

/// `None`: the SDK is not installed.
///
/// # Panics
/// If it does not accept one of them as a CloudEvent.
pub async fn understood(messages: &[Message]) -> Option<Vec<Understood>> {
    let python = servers::kafka_python()?;
    let asked = serde_json::to_vec(messages).unwrap_or_else(|error| panic!("messages as JSON: {error}"));
    let mut child = Command::new(python)
        .arg(SCRIPT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run Python: {error}"));
    if let Some(mut stdin) = child.stdin.take() {
        // A script that fails early does not read its input; its output says why.
        let _ = stdin.write_all(&asked).await;
    }
    let output = child
        .wait_with_output()
        .await
        .unwrap_or_else(|error| panic!("cannot run Python: {error}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Some(
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{SCRIPT} gave no answer ({error}): {said}")),
    )
}
