//! Limits on pending events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Backpressure {
    /// Topics that share limits, at most 16 classes. The first class that matches a topic counts. An empty
    /// list removes the classes of the outbox. Without this key the relay leaves them as they are.
    pub classes: Option<Vec<PressureClass>>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PressureClass {
    /// The class's name in a refusal. Up to 64 characters.
    pub name: String,
    /// Topic patterns as in routes: `*` matches one token, a final `>` all the rest. A topic that no class
    /// matches is not limited.
    #[serde(default)]
    #[schemars(extend("x-default" = "every topic"))]
    pub topics: Vec<String>,
    /// If more of its events are pending, `enqueue` waits a little: from 1 ms just above this limit to
    /// `max_delay_ms` at the hard limit (at twice the soft limit if there is no hard one).
    #[serde(default)]
    pub soft: Option<u64>,
    /// If this many of its events are pending, `enqueue` refuses: a typed error, SQLSTATE `PB429`, HTTP 429.
    #[serde(default)]
    pub hard: Option<u64>,
    /// The longest wait; 5,000 at most. It happens inside the producer's transaction.
    #[serde(default = "max_delay_ms")]
    pub max_delay_ms: u64,
    /// The class has no limits: its events are never slowed or refused, whatever else is pending.
    #[serde(default)]
    pub never_refuse: bool,
}

fn max_delay_ms() -> u64 {
    100
}
