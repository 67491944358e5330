use std::{collections::BTreeSet, time::Duration};

use jiff::SignedDuration;

use super::*;
use crate::{
    metrics::recorded::EVENT_TYPES_MAX,
    pressure::{Level, Standing},
    scale::ScaleLimits,
    settlement::{Dead, DeadReason, FailedTry, Settlement},
    sink::{SinkErrorKind, audit::Audited},
    store::{Sample, sample::Updates},
};

fn dead(reason: DeadReason) -> Dead {
    Dead {
        seq: 1,
        lane: 0,
        subject: None,
        key: None,
        after: crate::route::AfterDeath::Skip,
        attempts: 1,
        reason,
        failure: FailedTry {
            error: "x".into(),
            sink: None,
            relay: "r".into(),
        },
        tried: true,
        logged: false,
    }
}

/// A relay of which every metric has a value.
fn exporter() -> (Exporter, Arc<Progress>) {
    let sink: Arc<str> = "events".into();
    let progress = Arc::new(Progress::new(
        None,
        None,
        [&sink].into_iter(),
        jiff::Timestamp::now,
    ));
    let recorded = &progress.recorded;
    recorded.sink(&sink).published(SignedDuration::from_millis(20));
    recorded.sink(&sink).published(SignedDuration::from_secs(-3));
    recorded.answered(&sink, Duration::from_millis(3));
    let audited = Audited {
        checked: 5,
        copies: 2,
        ..Audited::nothing("no right")
    };
    progress.audited(&sink, &audited);
    recorded.publish_error(&sink, SinkErrorKind::Busy);
    recorded.retry(Duration::from_secs(1));
    recorded.event_failed("Placed");
    recorded.settled(&Settlement {
        published: vec![1, 2],
        dead: vec![dead(DeadReason::PoisonMessage)],
        ..Settlement::default()
    });
    progress.set_sample(Sample {
        pending: 7,
        keys_held: 3,
        dead: [(DeadReason::PoisonMessage, 1)].into(),
        oldest_age: Some(Duration::from_millis(1500)),
        rows: Some(10),
        table_bytes: Some(8192),
        index_bytes: Some(4096),
        updates: Some(Updates { all: 9, hot: 8 }),
        pressure: vec![Standing {
            class: "all".into(),
            producers: Level::Slowed,
            pending: 12,
            soft: Some(10),
            hard: None,
            oldest_age: None,
            delay: None,
            retry_after: None,
        }],
        ..Sample::default()
    });
    (
        Exporter::new(PREFIX, progress.clone(), ScaleLimits::default()),
        progress,
    )
}

/// The names of all metrics, without the prefix.
fn names(text: &str) -> BTreeSet<&str> {
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE outbox_")?.split_once(' '));
    names.map(|(name, _)| name).collect()
}

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|known| known == line), "no `{line}` in:\n{text}");
}

#[test]
fn a_scrape_shows_what_was_recorded() {
    let (exporter, _progress) = exporter();
    let text = exporter.text();
    for line in [
        r#"outbox_published_total{sink="events"} 2"#,
        r#"outbox_end_to_end_latency_seconds_bucket{le="0.025",sink="events"} 2"#,
        r#"outbox_publish_duration_seconds_bucket{le="0.0025",sink="events"} 0"#,
        r#"outbox_publish_duration_seconds_bucket{le="0.005",sink="events"} 1"#,
        r#"outbox_publish_errors_total{sink="events",kind="busy"} 1"#,
        "outbox_delivered_total 2",
        r#"outbox_dead_total{reason="poison_message"} 1"#,
        r#"outbox_dead_total{reason="processing_timeout"} 0"#,
        r#"outbox_events{state="pending"} 7"#,
        r#"outbox_events{state="dead"} 1"#,
        r#"outbox_dead_letters{reason="poison_message"} 1"#,
        "outbox_oldest_age_seconds 1.5",
        "outbox_keys_held 3",
        r#"outbox_sink_up{sink="events"} 0"#,
        r#"outbox_backpressure_level{class="all"} 1"#,
        "outbox_table_hot_updates_total 8",
        r#"outbox_audit_checked_total{sink="events"} 5"#,
        r#"outbox_audit_copies_total{sink="events"} 2"#,
        r#"outbox_audit_lost_total{sink="events"} 0"#,
        r#"outbox_audit_failed_total{sink="events"} 1"#,
    ] {
        has(&text, line);
    }
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_exists() {
    let document = include_str!("../../../../docs/METRICS.md");
    let (ours, _) = document.split_once("## Names that other outboxes use").unwrap();
    let documented = ours
        .lines()
        .filter_map(|line| line.strip_prefix("| `outbox_")?.split(['`', '{']).next());
    let documented: BTreeSet<&str> = documented.collect();
    let (exporter, _progress) = exporter();
    let text = exporter.text();
    assert_eq!(names(&text), documented);
}

#[test]
fn an_outage_of_a_sink_is_counted_while_it_lasts_and_after() {
    let (exporter, progress) = exporter();
    progress.sink_is("events", None);
    has(&exporter.text(), r#"outbox_sink_up{sink="events"} 1"#);
    progress.sink_is("events", Some("refused"));
    let text = exporter.text();
    has(&text, r#"outbox_sink_up{sink="events"} 0"#);
    assert!(progress.sink_outages()["events"] > Duration::ZERO);
    assert!(progress.sink_is("events", None).is_some());
    assert!(progress.sink_is("events", None).is_none(), "the outage is over");
    let total = progress.sink_outages()["events"];
    assert!(total > Duration::ZERO);
    assert_eq!(progress.sink_outages()["events"], total, "it is over");
}

#[test]
fn the_number_of_event_types_is_bounded_and_their_names_are_escaped() {
    let (exporter, progress) = exporter();
    progress.recorded.event_failed("a\"b\\c\nd");
    for n in 0..EVENT_TYPES_MAX + 20 {
        progress.recorded.event_failed(&format!("Type{n}"));
    }
    let text = exporter.text();
    let types = text
        .lines()
        .filter(|line| line.starts_with("outbox_event_type_failures_total{"));
    assert_eq!(types.count(), EVENT_TYPES_MAX + 1);
    has(
        &text,
        r#"outbox_event_type_failures_total{event_type="other"} 22"#,
    );
    has(
        &text,
        r#"outbox_event_type_failures_total{event_type="a\"b\\c\nd"} 1"#,
    );
}

#[test]
fn a_prefix_is_made_of_the_configured_text() {
    assert_eq!(
        metric_prefix("memoryos.storage.outbox").unwrap(),
        "memoryos_storage_outbox"
    );
    for bad in ["", "1st", "a-b", "ä", "a b", &"x".repeat(65)] {
        assert!(metric_prefix(bad).is_err(), "{bad}");
    }
}
