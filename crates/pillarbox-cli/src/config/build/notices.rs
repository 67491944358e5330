//! Who is notified of dead letters and troubles, and how.

use std::time::Duration;

use pillarbox_relay::{
    notice::{ChannelOptions, Options},
    signature::Secret,
};
use url::Url;

use super::{Problems, within};
use crate::config::schema::{Command, Outbox, Webhook};

/// More than anybody needs. Each channel has its own task and runs a statement per minute.
const CHANNELS_MAX: usize = 20;
const RETRIES_MAX: usize = 50;
/// Three months: a longer wait is a mistake.
const WAIT_SECONDS_MAX: u64 = 90 * 86_400;

const TIMEOUT_SECONDS_MAX: u64 = 600;

/// What a relay reports, and through which channels.
#[derive(Clone)]
pub(crate) struct NoticeSettings {
    /// All channels of the configuration, for testing them.
    pub configured: Vec<ChannelOptions>,
    /// The channels in use: empty if notices are off.
    pub channels: Vec<ChannelOptions>,
    pub options: Options,
}

pub(super) fn settings(outbox: &Outbox, problems: &mut Problems) -> NoticeSettings {
    let given = &outbox.dlq.notifications;
    let key = |name: &str| format!("outbox.dlq.notifications.{name}");
    within(problems, key("gather_ms"), given.gather_ms, WAIT_SECONDS_MAX);
    within(
        problems,
        key("check_interval_seconds"),
        given.check_interval_seconds,
        WAIT_SECONDS_MAX,
    );
    let waits = [
        ("quiet_period_seconds", given.quiet_period_seconds),
        ("recovery_wait_seconds", given.recovery_wait_seconds),
        ("trouble_wait_seconds", given.trouble_wait_seconds),
    ];
    let retries = given
        .retry_delays_seconds
        .iter()
        .map(|delay| ("retry_delays_seconds", *delay));
    for (name, seconds) in waits.into_iter().chain(retries) {
        // An empty list is allowed.
        within(problems, key(name), seconds.max(1), WAIT_SECONDS_MAX);
    }
    if given.retry_delays_seconds.len() > RETRIES_MAX {
        problems.push((
            key("retry_delays_seconds"),
            format!("the maximum is {RETRIES_MAX} entries"),
        ));
    }
    if given.webhooks.len() + given.commands.len() > CHANNELS_MAX {
        let text = format!("the maximum is {CHANNELS_MAX} webhooks and commands");
        problems.push((key("webhooks"), text));
    }
    let alert = outbox.monitoring.alert_on_dlq_events;
    let mut configured = Vec::new();
    if given.log || alert {
        configured.push(ChannelOptions::Log { alert });
    }
    for (index, webhook) in given.webhooks.iter().enumerate() {
        configured.extend(self::webhook(
            webhook,
            &key(&format!("webhooks.{index}")),
            problems,
        ));
    }
    for (index, command) in given.commands.iter().enumerate() {
        configured.extend(self::command(
            command,
            &key(&format!("commands.{index}")),
            problems,
        ));
    }
    NoticeSettings {
        channels: match outbox.dlq.dlq_notification_enabled {
            true => configured.clone(),
            false if alert => vec![ChannelOptions::Log { alert }],
            false => Vec::new(),
        },
        configured,
        options: Options {
            quiet_period: Duration::from_secs(given.quiet_period_seconds),
            gather: Duration::from_millis(given.gather_ms),
            look_every: Duration::from_secs(given.check_interval_seconds),
            recovery_wait: Duration::from_secs(given.recovery_wait_seconds),
            trouble_wait: given
                .troubles
                .then(|| Duration::from_secs(given.trouble_wait_seconds)),
            retry_delays: given
                .retry_delays_seconds
                .iter()
                .copied()
                .map(Duration::from_secs)
                .collect(),
        },
    }
}

/// The messages never show the address or a secret.
fn webhook(webhook: &Webhook, key: &str, problems: &mut Problems) -> Option<ChannelOptions> {
    let before = problems.len();
    let address = Url::parse(&webhook.url).ok();
    let works = |url: &Url| {
        matches!(url.scheme(), "http" | "https") && url.host_str().is_some_and(|host| !host.is_empty())
    };
    if !address.as_ref().is_some_and(works) {
        problems.push((
            format!("{key}.url"),
            "use https://host/path, or http:// on a network where nobody can listen".into(),
        ));
    }
    let secrets: Vec<&String> = webhook.secret.iter().chain(&webhook.secrets).collect();
    if secrets.is_empty() {
        let text = "notices are signed: give a `secret`, which is `whsec_` followed by the output of `openssl rand -base64 32`";
        problems.push((key.to_owned(), text.into()));
    }
    let mut parsed = Vec::new();
    for secret in secrets {
        match Secret::parse(secret) {
            Ok(secret) => parsed.push(secret),
            Err(error) => problems.push((format!("{key}.secret"), error.to_string())),
        }
    }
    timeout(webhook.timeout_seconds, key, problems);
    (problems.len() == before).then(|| ChannelOptions::Webhook {
        url: webhook.url.clone(),
        secrets: parsed,
        timeout: Duration::from_secs(webhook.timeout_seconds),
    })
}

fn command(command: &Command, key: &str, problems: &mut Problems) -> Option<ChannelOptions> {
    let before = problems.len();
    if command.command.first().is_none_or(|program| program.is_empty()) {
        let text = "name the program, followed by its arguments: [notify-me, --now]";
        problems.push((format!("{key}.command"), text.into()));
    }
    timeout(command.timeout_seconds, key, problems);
    (problems.len() == before).then(|| ChannelOptions::Command {
        command: command.command.clone(),
        timeout: Duration::from_secs(command.timeout_seconds),
    })
}

fn timeout(seconds: u64, key: &str, problems: &mut Problems) {
    within(
        problems,
        format!("{key}.timeout_seconds"),
        seconds,
        TIMEOUT_SECONDS_MAX,
    );
}
