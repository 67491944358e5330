//! The event log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EventLog {
    /// Record what became of each event. A route can decide for itself (`event_log`). Events for an
    /// `http-stream:` sink are always recorded, because the sink serves the log.
    pub enabled: bool,
    /// Delete entries after this time. 0: keep them for ever.
    pub retention_days: u32,
}

impl Default for EventLog {
    fn default() -> Self {
        Self {
            enabled: false,
            retention_days: 30,
        }
    }
}
