//! Dead letters: how long they are kept, who is told, and what is tried again on a schedule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Dlq {
    /// An event that used up its attempts is dead; `false` retries it for ever, and its key waits as long.
    pub auto_dlq_after_max_retries: bool,
    /// Tell people when events die, as `notifications` says.
    pub dlq_notification_enabled: bool,
    /// Dead letters are dropped after so many days, whether somebody looked at them or not; 0 keeps them for ever.
    pub dlq_retention_days: u32,
    /// Whether `pillarbox dead replay` and the HTTP API may send dead events again.
    pub enable_manual_replay: bool,
    /// How people are told.
    pub notifications: Notifications,
    /// What is sent again without anybody asking.
    pub reprocess: Vec<Reprocess>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Notifications {
    /// While more events die of a cause that was told, it is told again at most once in this time.
    pub quiet_period_seconds: u64,
    /// How long the first deaths are gathered, so that a notice has a count.
    pub gather_ms: u64,
    /// How often to look for what other processes did.
    pub check_interval_seconds: u64,
    /// How long a cause must be gone before people hear that it is.
    pub recovery_wait_seconds: u64,
    /// Also tell people of what keeps relays from delivering: sinks that are away, destinations that are paused, stalls.
    pub troubles: bool,
    /// How long such a trouble must last, or be over, before people hear of it.
    pub trouble_wait_seconds: u64,
    /// The waits before a webhook or a command is tried again; after the last a notice is given up.
    pub retry_delays_seconds: Vec<u64>,
    /// In the relay's log.
    pub log: bool,
    pub webhooks: Vec<Webhook>,
    pub commands: Vec<Command>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Webhook {
    /// `https://host/path`; it may hold a token and is never shown whole.
    pub url: String,
    /// What notices are signed with: `whsec_` and 24 to 64 bytes in base64.
    #[serde(default)]
    pub secret: Option<String>,
    /// Several, while they are changed: each signs.
    #[serde(default)]
    pub secrets: Vec<String>,
    #[serde(default = "webhook_timeout_seconds")]
    pub timeout_seconds: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Command {
    /// The program and its arguments; no shell reads them. It gets the notice as JSON on its stdin.
    pub command: Vec<String>,
    /// It is killed after this time.
    #[serde(default = "command_timeout_seconds")]
    pub timeout_seconds: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reprocess {
    /// For the log and the letters' history; each has its own.
    pub name: String,
    /// How often; or `at`.
    #[serde(default)]
    pub every_seconds: Option<u64>,
    /// Once a day at this time, `HH:MM` in UTC; or `every_seconds`.
    #[serde(default)]
    pub at: Option<String>,
    /// A topic, or with `.>` at its end all below it.
    #[serde(default)]
    pub topic: Option<String>,
    #[serde(default)]
    pub event_type: Option<String>,
    /// Why they died.
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub fingerprint: Option<String>,
    /// Letters of one run, the oldest first.
    #[serde(default = "reprocess_limit")]
    pub limit: u32,
    /// A letter that was replayed so often, by whomever, is left alone.
    #[serde(default = "times_max")]
    pub times_max: u32,
    /// Letters that died more recently wait for a later run.
    #[serde(default = "min_age_seconds")]
    pub min_age_seconds: u64,
}

impl Default for Dlq {
    fn default() -> Self {
        Self {
            auto_dlq_after_max_retries: true,
            dlq_notification_enabled: false,
            dlq_retention_days: 30,
            enable_manual_replay: true,
            notifications: Notifications::default(),
            reprocess: Vec::new(),
        }
    }
}

impl Default for Notifications {
    fn default() -> Self {
        let options = pillarbox_relay::notice::Options::default();
        Self {
            quiet_period_seconds: options.quiet_period.as_secs(),
            gather_ms: u64::try_from(options.gather.as_millis()).unwrap_or(u64::MAX),
            check_interval_seconds: options.look_every.as_secs(),
            recovery_wait_seconds: options.recovery_wait.as_secs(),
            troubles: true,
            trouble_wait_seconds: options.trouble_wait.map_or(0, |wait| wait.as_secs()),
            retry_delays_seconds: options.retry_delays.iter().map(|delay| delay.as_secs()).collect(),
            log: true,
            webhooks: Vec::new(),
            commands: Vec::new(),
        }
    }
}

fn webhook_timeout_seconds() -> u64 {
    15
}

fn command_timeout_seconds() -> u64 {
    30
}

fn reprocess_limit() -> u32 {
    1_000
}

fn times_max() -> u32 {
    3
}

fn min_age_seconds() -> u64 {
    60
}
