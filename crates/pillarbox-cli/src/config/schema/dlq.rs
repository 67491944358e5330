//! Dead letters: how long they are kept, who is notified, and what is sent again on a schedule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Dlq {
    /// An event that used up its attempts is dead. With false it is retried for ever at the longest delay,
    /// and its key waits as long. An event that can never arrive (refused, too large) is dead in any case.
    pub auto_dlq_after_max_retries: bool,
    /// Notify people when events die and when relays can't deliver, as `notifications` says.
    pub dlq_notification_enabled: bool,
    /// Dead letters are deleted after this many days, whether or not somebody looked at them. The events stay
    /// in the table as dead. 0 keeps the letters for ever.
    pub dlq_retention_days: u32,
    /// Whether `pillarbox dead replay`, `pillarbox dead reprocess` and the HTTP API may send dead events
    /// again. The schedules under `reprocess` run in any case.
    pub enable_manual_replay: bool,
    /// How people are notified.
    pub notifications: Notifications,
    /// Dead letters that a relay sends again on a schedule; at most 50 schedules.
    pub reprocess: Vec<Reprocess>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Notifications {
    /// While more events die of a reported cause, it is reported again at most once in this time.
    pub quiet_period_seconds: u64,
    /// How long to collect the first deaths of a cause, so that the notice has a count.
    pub gather_ms: u64,
    /// How often to look for changes by other processes: their dead letters, replays and discards. A relay's
    /// own deaths wake it at once. Looking takes at most 2 % of the time, so with a million open letters it
    /// happens less often.
    pub check_interval_seconds: u64,
    /// How long a cause must be gone before its recovery is reported.
    pub recovery_wait_seconds: u64,
    /// Also report what keeps relays from delivering: sinks that are away, destinations that are paused,
    /// relays that are stalled.
    pub troubles: bool,
    /// How long such a trouble must last, or be over, before it is reported.
    pub trouble_wait_seconds: u64,
    /// The waits before a webhook or a command is retried, at most 50. After the last one, by default about a
    /// day, the notice is given up: the log has an error, and its row is kept for 30 days.
    pub retry_delays_seconds: Vec<u64>,
    /// Report in the relay's log: a warning, and at level `info` when it is over.
    pub log: bool,
    /// Addresses that receive signed notices. At most 20 webhooks and commands together.
    pub webhooks: Vec<Webhook>,
    /// Programs that receive notices on their stdin.
    pub commands: Vec<Command>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Webhook {
    /// `https://host/path`, or `http://` where nobody can listen. Everything behind the host may be a token;
    /// it is never shown or logged.
    pub url: String,
    /// Signs the notices: `whsec_` and 24 to 64 bytes in base64 (`openssl rand -base64 32`).
    #[serde(default)]
    #[schemars(extend("x-default" = "this or `secrets` is required"))]
    pub secret: Option<String>,
    /// Several secrets; each of them signs. Use it while you change secrets.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// How long to wait for the answer; 600 at most.
    #[serde(default = "webhook_timeout_seconds")]
    pub timeout_seconds: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Command {
    /// The program and its arguments. It runs without a shell and receives the notice as JSON on its stdin.
    pub command: Vec<String>,
    /// It is killed after this time; 600 at most.
    #[serde(default = "command_timeout_seconds")]
    pub timeout_seconds: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reprocess {
    /// A unique name for the log and the letters' history (`reprocessor (<relay>)`). The last run is
    /// remembered under it.
    pub name: String,
    /// How often it runs.
    #[serde(default)]
    #[schemars(extend("x-default" = "this or `at` is required"))]
    pub every_seconds: Option<u64>,
    /// Once a day at this time, `"HH:MM"` in UTC.
    #[serde(default)]
    #[schemars(extend("x-default" = "this or `every_seconds` is required"))]
    pub at: Option<String>,
    /// Only letters of this topic; `a.>` means all below `a`.
    #[serde(default)]
    #[schemars(extend("x-default" = "all"))]
    pub topic: Option<String>,
    /// Only letters of this event type.
    #[serde(default)]
    #[schemars(extend("x-default" = "all"))]
    pub event_type: Option<String>,
    /// Only letters that died for this reason, as in `pillarbox dead list`.
    #[serde(default)]
    #[schemars(extend("x-default" = "all"))]
    pub reason: Option<String>,
    /// Only letters of this cause, as in `pillarbox dead list`.
    #[serde(default)]
    #[schemars(extend("x-default" = "all"))]
    pub fingerprint: Option<String>,
    /// How many letters one run sends, the oldest first.
    #[serde(default = "reprocess_limit")]
    pub limit: u32,
    /// A letter that was replayed this often, by anybody, is left alone.
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
