//! The options of a relay.

use std::time::Duration;

use pillarbox_relay::{engine::Options, retry::RetryPolicy};

use super::{DAY_MS, Problems, within};
use crate::config::schema;

pub(super) fn options(outbox: &schema::Outbox, problems: &mut Problems) -> Options {
    let (publisher, retry) = (&outbox.publisher, &outbox.retry_policy);
    for (name, value, max) in [
        ("batch_size", publisher.batch_size.into(), 100_000),
        ("poll_interval_ms", publisher.poll_interval_ms, DAY_MS),
        (
            "max_concurrent_publishers",
            publisher.max_concurrent_publishers.into(),
            1_000,
        ),
        ("lease_ms", publisher.lease_ms, DAY_MS),
        (
            "window_events_max",
            publisher.window_events_max.into(),
            10_000_000,
        ),
        ("window_bytes_max", publisher.window_bytes_max, 1 << 40),
    ] {
        within(problems, format!("outbox.publisher.{name}"), value, max);
    }
    if (1..500).contains(&publisher.lease_ms) {
        problems.push((
            "outbox.publisher.lease_ms".into(),
            "a lease must be 500 ms or longer: it is renewed over the network".into(),
        ));
    }
    for (name, value) in [
        (
            "destination_outage_max_seconds",
            publisher.destination_outage_max_seconds,
        ),
        ("stall_after_seconds", publisher.stall_after_seconds),
    ] {
        if let Some(value) = value {
            within(
                problems,
                format!("outbox.publisher.{name}"),
                value,
                10 * 365 * 86_400,
            );
        }
    }
    if publisher
        .stall_after_seconds
        .is_some_and(|seconds| (1..5).contains(&seconds))
    {
        problems.push((
            "outbox.publisher.stall_after_seconds".into(),
            "it must be 5 or more: a database may take some seconds to answer".into(),
        ));
    }
    let key = |name: &str| format!("outbox.retry_policy.{name}");
    within(
        problems,
        key("default_max_attempts"),
        retry.default_max_attempts,
        1_000_000,
    );
    within(
        problems,
        key("default_base_delay_ms"),
        retry.default_base_delay_ms,
        30 * DAY_MS,
    );
    within(
        problems,
        key("default_max_delay_ms"),
        retry.default_max_delay_ms,
        30 * DAY_MS,
    );
    if retry.default_max_delay_ms < retry.default_base_delay_ms {
        problems.push((
            key("default_max_delay_ms"),
            "it is shorter than `default_base_delay_ms`".into(),
        ));
    }
    if !(1.0..=100.0).contains(&retry.default_backoff_multiplier) {
        problems.push((
            key("default_backoff_multiplier"),
            "it must be between 1 and 100".into(),
        ));
    }
    let [low, high] = retry.jitter_range;
    if !(low > 0.0 && low <= high && high <= 10.0) {
        problems.push((
            key("jitter_range"),
            "it must be two numbers, the smaller first, above 0 and up to 10".into(),
        ));
    }
    Options {
        name: publisher.name.clone().unwrap_or_else(machine_name),
        batch_events_max: publisher.batch_size as usize,
        publishers_max: publisher.max_concurrent_publishers as usize,
        window_events_max: publisher.window_events_max as usize,
        window_bytes_max: as_size(publisher.window_bytes_max),
        payload_bytes_max: as_size(outbox.database.payload_bytes_max),
        poll_interval_max: Duration::from_millis(publisher.poll_interval_ms),
        lease: Duration::from_millis(publisher.lease_ms),
        destination_outage_max: publisher.destination_outage_max_seconds.map(Duration::from_secs),
        stall_after: publisher
            .stall_after_seconds
            .map_or_else(|| stall_after(outbox), Duration::from_secs),
        retry: RetryPolicy {
            attempts_max: retry.default_max_attempts,
            for_ever: !outbox.dlq.auto_dlq_after_max_retries,
            base_delay: Duration::from_millis(retry.default_base_delay_ms),
            max_delay: Duration::from_millis(retry.default_max_delay_ms),
            multiplier: retry.default_backoff_multiplier,
            jitter: if retry.enable_jitter {
                (low, high)
            } else {
                (1.0, 1.0)
            },
        },
        ..Options::default()
    }
}

/// Longer than any healthy operation takes.
fn stall_after(outbox: &schema::Outbox) -> Duration {
    let sinks = outbox.sinks.values().map(|sink| sink.publish_timeout_ms);
    let timeouts = sinks.chain([outbox.database.answer_timeout_ms, outbox.publisher.lease_ms]);
    let longest = Duration::from_millis(timeouts.max().unwrap_or_default());
    longest.saturating_mul(3).max(Duration::from_secs(60))
}

fn as_size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn machine_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "relay".into())
}
