//! Limits on what may wait.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Backpressure {
    /// Topics that share limits; the first class that takes a topic counts. An empty list removes those of the outbox; left out, the
    /// relay leaves them as they are.
    pub classes: Option<Vec<PressureClass>>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PressureClass {
    /// What a refusal calls it.
    pub name: String,
    /// Topic patterns as in NATS: `*` is one token, a last `>` all the rest. Left out, it takes every topic.
    #[serde(default)]
    pub topics: Vec<String>,
    /// When more of its events wait, `enqueue` waits a little, longer as the hard limit comes near.
    #[serde(default)]
    pub soft: Option<u64>,
    /// When so many of its events wait, `enqueue` refuses.
    #[serde(default)]
    pub hard: Option<u64>,
    /// The longest that `enqueue` waits.
    #[serde(default = "max_delay_ms")]
    pub max_delay_ms: u64,
    /// Its events are never slowed or refused: it has no limits.
    #[serde(default)]
    pub never_refuse: bool,
}

fn max_delay_ms() -> u64 {
    100
}
