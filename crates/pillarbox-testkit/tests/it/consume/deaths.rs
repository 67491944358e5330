//! An event whose handler kills the whole process.

use pillarbox::EventId;
use std::{collections::BTreeMap, time::Duration};

use pillarbox_testkit::{
    consumer::{Effects, Plan, events},
    servers::{self, Nats},
    wait,
};
use tokio::process::Child;

use super::{
    dead_letters::letters_of_nats,
    harness::{Published, effects, publish_kafka, publish_nats, stream, topics},
    killed::program,
};

const EVENTS: usize = 400;
const DEATHS_MAX: u32 = 3;
/// Each of two instances may die this often, and again because of what the other one left.
const DEATHS_ALLOWED: usize = 4 * (DEATHS_MAX as usize + 1);
/// The limit for a whole test.
const PATIENCE: Duration = Duration::from_secs(120);

/// Events with one that kills its process. It is in the middle of its key, and many others are handled at the
/// same time.
fn with_a_deadly_one(seed: u64) -> (Vec<Published>, Vec<Published>, EventId) {
    let innocent = events(EVENTS, 40, seed);
    let deadly = EventId::new();
    let mut all = innocent.clone();
    all.insert(EVENTS / 3, (deadly.clone(), "k-0".to_owned(), 0));
    (all, innocent, deadly)
}

fn plan(url: &str, topic: &str, deadly: EventId) -> Plan {
    Plan {
        deadly: Some(deadly),
        deaths_max: DEATHS_MAX,
        // All others take longer, so that many are being handled whenever the process dies.
        slow: 1.0,
        slow_ms: 200,
        ..Plan::new(url, topic)
    }
}

/// Restarts each process that has died, as a supervisor does, until all events are done. Returns how many
/// died.
async fn keep_running(plans: &[Plan], effects: &Effects) -> usize {
    let mut running: Vec<Child> = plans.iter().map(|plan| plan.start(program())).collect();
    let mut deaths = 0;
    wait::until_ok_within(PATIENCE, async || {
        if effects.count().await >= EVENTS as i64 {
            return Ok(());
        }
        for (plan, child) in plans.iter().zip(&mut running) {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(
                    !status.success(),
                    "a consumer must not end properly without being told to"
                );
                deaths += 1;
                *child = plan.start(program());
            }
        }
        assert!(deaths <= DEATHS_ALLOWED, "{deaths} deaths, more than allowed");
        Err(format!("{deaths} deaths, and not all events are done"))
    })
    .await;
    for mut child in running {
        drop(child.stdin.take());
        assert!(child.wait().await.unwrap().success());
    }
    deaths
}

async fn assert_only_it_died(
    effects: &Effects,
    innocent: &[Published],
    letters: &[BTreeMap<String, String>],
    deadly: EventId,
) {
    effects.assert_whole(innocent).await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    for (name, expected) in [
        ("Pillarbox-Id", deadly.to_string()),
        ("Pillarbox-Dead-Reason", "process_died".to_owned()),
    ] {
        assert_eq!(letters[0][name], expected, "{name}");
    }
    assert!(letters[0]["Pillarbox-Dead-Attempts"].parse::<u32>().unwrap() >= DEATHS_MAX);
    // A process that dies while it waits for another's commit leaves the row of a processed event. The next
    // consumer that looks removes it.
    let left = "select count(*) from processed_events_attempts
        where begun > 0 and event_id not in (select event_id from processed_events)";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&effects.pool).await.unwrap();
    assert_eq!(left, 0, "a proper stop must leave no counts behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_jetstream_an_event_that_kills_the_process_goes_to_the_dead_letters_and_no_other_does() {
    let Some(nats) = Nats::start().await else { return };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let (all, innocent, deadly) = with_a_deadly_one(60);
    publish_nats(&context, "THINGS.changed", &all).await;
    let plan = Plan {
        nats: Some(nats.url()),
        ..plan(&url, "THINGS", deadly.clone())
    };
    let deaths = keep_running(&[plan], &effects).await;
    // Once before there were suspects, once beside other events, and then alone.
    assert_eq!(deaths, 1 + DEATHS_MAX as usize);
    let letters = letters_of_nats(&context, "THINGS.changed.dead").await;
    assert_only_it_died(&effects, &innocent, &letters, deadly).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_instances_that_an_event_kills_again_and_again_both_live_in_the_end() {
    let Some(nats) = Nats::start().await else { return };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let (all, innocent, deadly) = with_a_deadly_one(61);
    publish_nats(&context, "THINGS.changed", &all).await;
    let plan = Plan {
        nats: Some(nats.url()),
        ..plan(&url, "THINGS", deadly.clone())
    };
    keep_running(&[plan.clone(), plan], &effects).await;
    let letters = letters_of_nats(&context, "THINGS.changed.dead").await;
    assert_only_it_died(&effects, &innocent, &letters, deadly).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_kafka_an_event_that_kills_the_process_goes_to_the_dead_letters_and_no_other_does() {
    let Some(kafka) = servers::kafka().await else {
        return;
    };
    let Some((url, effects)) = effects().await else {
        return;
    };
    topics(kafka, "deadly", 3).await;
    let bootstrap = kafka.bootstrap();
    let (all, innocent, deadly) = with_a_deadly_one(62);
    publish_kafka(&bootstrap, "deadly", &all).await;
    let plan = Plan {
        kafka: Some(bootstrap.clone()),
        group: "deadly".to_owned(),
        instance: Some("one".to_owned()),
        ..plan(&url, "deadly", deadly.clone())
    };
    let deaths = keep_running(&[plan], &effects).await;
    assert_eq!(deaths, 1 + DEATHS_MAX as usize);
    let letters = pillarbox_testkit::kafka::messages(&bootstrap, "deadly.dead").await;
    let letters: Vec<_> = letters.into_iter().map(|letter| letter.headers).collect();
    assert_only_it_died(&effects, &innocent, &letters, deadly).await;
}
