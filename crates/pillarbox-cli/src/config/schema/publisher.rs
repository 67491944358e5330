//! How a relay works, and how it retries.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Publisher {
    /// The relay's name in `status`. It need not be unique.
    #[schemars(extend("x-default" = "the machine's name"))]
    pub name: Option<String>,
    /// How many events a sink gets at once.
    pub batch_size: u32,
    /// The longest wait between two polls of an idle database.
    pub poll_interval_ms: u64,
    /// How many batches are in flight at once.
    pub max_concurrent_publishers: u32,
    /// How relays share the work. `lanes`: a relay leases lanes of keys, and each key keeps its order. `rows`
    /// (MongoDB only): a relay locks events one by one, the oldest first. It sets `status: processing`,
    /// `locked_by`, and `locked_until` a minute ahead, which it renews while it works on them. Locks of a
    /// dead relay are taken over when they end. An idle relay looks again after up to 10 seconds, or when the
    /// change stream wakes it. `rows` keeps **no order beyond a batch**, and `after_death` has no effect.
    /// Choose before the first event: events that wait in one mode are not found in the other.
    pub claim: Claim,
    /// The work of a crashed relay is taken over after this time. At least 500.
    pub lease_ms: u64,
    /// How many events may be read and not yet settled.
    pub window_events_max: u32,
    /// The same limit in bytes.
    pub window_bytes_max: u64,
    /// How long a destination (a stream, topic or partition) may accept nothing before its events become dead
    /// letters: it is missing, full or without a leader, or the relay may not write to it. Until then its
    /// events wait and are not charged; other destinations continue. Each relay counts from when it first met
    /// the outage.
    #[schemars(extend("x-default" = "for ever"))]
    pub destination_outage_max_seconds: Option<u64>,
    /// If nothing moves for this long although something could, the relay says what it waits for (log,
    /// `status`, `/healthz`) and starts over. If that does not help, it exits with an error, so that its
    /// supervisor restarts it. At least 5.
    #[schemars(extend("x-default" = "60, or three times the longest timeout"))]
    pub stall_after_seconds: Option<u64>,
    /// **Not built yet.** Leave it at false.
    pub enable_wal_integration: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Claim {
    #[default]
    Lanes,
    Rows,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RetryPolicy {
    /// After this many failures the event is dead.
    pub default_max_attempts: u32,
    /// The wait after the first failure.
    pub default_base_delay_ms: u64,
    /// The longest wait, before jitter.
    pub default_max_delay_ms: u64,
    /// Each wait is this many times the one before; 1 to 100.
    pub default_backoff_multiplier: f64,
    /// Vary the waits, so that events that failed together are not retried together.
    pub enable_jitter: bool,
    /// Two numbers. A wait is multiplied by a random number between them.
    pub jitter_range: [f64; 2],
}

impl Default for Publisher {
    fn default() -> Self {
        Self {
            name: None,
            batch_size: 200,
            poll_interval_ms: 200,
            max_concurrent_publishers: 5,
            claim: Claim::default(),
            lease_ms: 5_000,
            window_events_max: 4_000,
            window_bytes_max: 32 * 1024 * 1024,
            destination_outage_max_seconds: None,
            stall_after_seconds: None,
            enable_wal_integration: false,
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            default_max_attempts: 5,
            default_base_delay_ms: 1_000,
            default_max_delay_ms: 60_000,
            default_backoff_multiplier: 2.0,
            enable_jitter: true,
            jitter_range: [0.75, 1.25],
        }
    }
}
