use std::sync::Arc;

use super::*;
use crate::engine::{
    Progress,
    progress::{AuditReport, Outage},
};

const FRESH: Duration = Duration::from_secs(1);

fn healthy() -> ProgressReport {
    let sink: Arc<str> = "events".into();
    let progress = Progress::new(None, None, [&sink].into_iter(), jiff::Timestamp::now);
    progress.sink_is("events", None);
    progress.report()
}

fn outage() -> Outage {
    Outage {
        why: "refused".into(),
        since: jiff::Timestamp::UNIX_EPOCH,
    }
}

fn judged(report: &ProgressReport, sample: Sample, recent: Recent) -> Health {
    of_relay(
        report,
        None,
        Some(&(sample, FRESH)),
        recent,
        &HealthLimits::default(),
    )
}

/// The only problem, which is in this part.
fn only(health: &Health, part: Part) -> &str {
    let problems: Vec<_> = health.problems.iter().collect();
    let [(found, problems)] = problems[..] else {
        panic!("expected one part: {health:?}");
    };
    assert_eq!(*found, part, "{health:?}");
    assert_eq!(problems.len(), 1, "{health:?}");
    &problems[0]
}

#[test]
fn a_relay_that_works_is_healthy_in_every_part() {
    let health = judged(&healthy(), Sample::default(), Recent::default());
    assert!(health.is_healthy(), "{health:?}");
    assert!(health.parts().values().all(|part| part.healthy) && health.parts().len() == 3);
}

#[test]
fn the_publisher_is_red_while_something_it_needs_does_not_answer() {
    type Breaks = fn(&mut ProgressReport);
    let cases: [(&str, Breaks); 5] = [
        ("the database is away: refused", |r| {
            r.store_down = Some("refused".into())
        }),
        ("the sink events is away: refused", |r| {
            r.sinks.insert("events".into(), SinkState::Down(outage()));
        }),
        ("the sink events has not answered yet", |r| {
            r.sinks.insert("events".into(), SinkState::Untried);
        }),
        ("events/ORDERS accepts nothing: refused", |r| {
            r.paused.insert("events/ORDERS".into(), outage());
        }),
        ("the schema registry is away: refused", |r| {
            r.schema_registry_down = Some("refused".into())
        }),
    ];
    for (problem, breaks) in cases {
        let mut report = healthy();
        breaks(&mut report);
        let health = judged(&report, Sample::default(), Recent::default());
        assert_eq!(only(&health, Part::Publisher), problem);
    }
    let waiting_for = Some("the database, since 70 s".to_owned());
    let sample = (Sample::default(), FRESH);
    let stalled = of_relay(
        &healthy(),
        waiting_for,
        Some(&sample),
        Recent::default(),
        &HealthLimits::default(),
    );
    let problem = "the relay makes no progress: the database, since 70 s";
    assert_eq!(only(&stalled, Part::Publisher), problem);
}

#[test]
fn performance_is_red_above_its_limits_and_green_at_them() {
    let old = |seconds| Sample {
        oldest_age: Some(Duration::from_secs(seconds)),
        ..Sample::default()
    };
    assert!(judged(&healthy(), old(300), Recent::default()).is_healthy());
    let health = judged(&healthy(), old(301), Recent::default());
    assert!(only(&health, Part::Performance).contains("301 s old; the limit is 300 s"));

    let failed = |failed| Sample {
        failed,
        ..Sample::default()
    };
    assert!(judged(&healthy(), failed(1_000), Recent::default()).is_healthy());
    let health = judged(&healthy(), failed(1_001), Recent::default());
    assert!(only(&health, Part::Performance).contains("1001 events wait for a retry"));

    let rate = |published, failed| Recent {
        published,
        failed,
        dead_growth: 0,
    };
    assert!(judged(&healthy(), Sample::default(), rate(90, 10)).is_healthy());
    let health = judged(&healthy(), Sample::default(), rate(89, 11));
    assert!(only(&health, Part::Performance).contains("89 % of 100 attempts"));
    let few = judged(&healthy(), Sample::default(), rate(0, 19));
    assert!(few.is_healthy(), "too few attempts mean nothing: {few:?}");
}

#[test]
fn a_look_at_the_outbox_that_is_missing_or_old_is_a_problem() {
    let limits = HealthLimits::default();
    let health = of_relay(&healthy(), None, None, Recent::default(), &limits);
    assert!(only(&health, Part::Performance).contains("has not been looked at"));
    let old = (Sample::default(), SAMPLE_AGE_MAX + FRESH);
    let health = of_relay(&healthy(), None, Some(&old), Recent::default(), &limits);
    assert!(only(&health, Part::Performance).contains("61 s ago"));
}

#[test]
fn data_is_red_for_free_lanes_missed_events_and_growing_dead_letters() {
    let free = Sample {
        lanes_without_owner: 3,
        ..Sample::default()
    };
    let health = judged(&healthy(), free, Recent::default());
    assert!(only(&health, Part::Data).contains("3 of 256 lanes"));

    let mut report = healthy();
    report.swept = 2;
    let health = judged(&report, Sample::default(), Recent::default());
    assert!(only(&health, Part::Data).contains("missed 2 events"));

    let growth = |dead_growth| Recent {
        dead_growth,
        ..Recent::default()
    };
    assert!(judged(&healthy(), Sample::default(), growth(100)).is_healthy());
    let health = judged(&healthy(), Sample::default(), growth(101));
    assert!(only(&health, Part::Data).contains("101 more dead letters"));
}

#[test]
fn a_limit_that_is_off_is_not_judged() {
    let off = HealthLimits {
        oldest_age_max: None,
        failed_max: None,
        success_rate_min: None,
        dead_growth_max: None,
    };
    let sample = Sample {
        oldest_age: Some(Duration::from_secs(1_000_000)),
        failed: 1_000_000,
        ..Sample::default()
    };
    let recent = Recent {
        published: 0,
        failed: 1_000,
        dead_growth: 1_000_000,
    };
    let health = of_relay(&healthy(), None, Some(&(sample, FRESH)), recent, &off);
    assert!(health.is_healthy(), "{health:?}");
}

#[test]
fn without_a_relay_the_database_says_so() {
    let limits = HealthLimits::default();
    let health = of_database(&Sample::default(), &limits);
    assert_eq!(only(&health, Part::Publisher), "no relay is running");
    let running = Sample {
        relays: 1,
        ..Sample::default()
    };
    assert!(of_database(&running, &limits).is_healthy());
}

#[test]
fn the_data_part_is_red_while_delivered_events_are_known_to_be_gone() {
    let id = uuid::Uuid::nil();
    let mut report = healthy();
    let audit = AuditReport {
        checked: 10,
        lost: 7,
        expired: 3,
        ..AuditReport::default()
    };
    report.audits.insert("events".into(), audit);
    assert!(
        judged(&report, Sample::default(), Recent::default()).is_healthy(),
        "it was long ago"
    );
    let loss = Loss {
        since: jiff::Timestamp::UNIX_EPOCH,
        events: 7,
        ids: vec![id.into()],
    };
    report.audits.get_mut("events").unwrap().loss = Some(loss);
    let health = judged(&report, Sample::default(), Recent::default());
    assert_eq!(
        only(&health, Part::Data),
        format!("7 delivered events are gone from the sink events: {id}")
    );
}
