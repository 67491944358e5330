//! The contract of backpressure.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use pillarbox::{Event, pressure::Limit};
use pillarbox_relay::{
    pressure::{Class, Figures, Standing},
    route::Pattern,
};

use super::{StoreHarness, scene::*};

fn class(name: &str, topic: &str, limit: Limit) -> Class {
    Class {
        name: name.into(),
        topics: vec![Pattern::new(topic).unwrap()],
        limit,
    }
}

fn between(soft: u64, hard: u64) -> Limit {
    Limit {
        soft: Some(soft),
        hard: Some(hard),
        max_delay: Duration::from_millis(100),
    }
}

async fn standings(harness: &dyn StoreHarness) -> Vec<Standing> {
    harness.admin().status().await.unwrap().pressure
}

pub async fn new_classes_replace_the_old_ones(harness: Arc<dyn StoreHarness>) {
    let Some(gauge) = harness.gauge() else { return };
    let classes = [
        class("bulk", "bulk.>", between(10, 20)),
        class("money", "money.*", Limit::default()),
    ];
    assert_eq!(standings(&*harness).await, []);
    for kept in [2, 1, 1, 0] {
        gauge.set_classes(&classes[..kept]).await.unwrap();
        let standings = standings(&*harness).await;
        let names: Vec<&str> = standings.iter().map(|standing| &*standing.class).collect();
        assert_eq!(names, ["bulk", "money"][..kept]);
        if let Some(bulk) = standings.first() {
            assert_eq!((bulk.soft, bulk.hard), (Some(10), Some(20)));
        }
    }
}

pub async fn pending_events_are_counted_by_topic(harness: Arc<dyn StoreHarness>) {
    let Some(gauge) = harness.gauge() else { return };
    let scene = Scene::new(harness.clone()).await;
    scene.publish(&scene.stored("done", 3).await).await;
    let begin = Timestamp::now() - SignedDuration::from_secs(3_600);
    let event = |topic: &str| Event::to(topic).event_type("X").aggregate("thing", "1");
    let topics = ["a.x", "a.x", "b", "a.x"];
    let events: Vec<Event> = topics.iter().map(|topic| event(topic)).collect();
    scene.commit(&events).await;
    let glance = gauge.glance(100).await.unwrap();
    assert!(glance.waiting >= 4, "{glance:?}");
    let waiting = gauge.count(glance.at, 100).await.unwrap();
    let counts: BTreeMap<&str, u64> = waiting
        .topics
        .iter()
        .map(|topic| (&*topic.topic, topic.count))
        .collect();
    assert_eq!(counts, BTreeMap::from([("a.x", 3), ("b", 1)]));
    assert_eq!(waiting.not_counted, 0);
    for topic in &waiting.topics {
        assert!(topic.oldest.is_some_and(|oldest| oldest > begin), "{topic:?}");
    }
    let some = gauge.count(glance.at, 2).await.unwrap();
    assert_eq!(some.topics.iter().map(|topic| topic.count).sum::<u64>(), 2);
    assert!(some.not_counted >= 2, "{some:?}");
}

pub async fn figures_have_their_age(harness: Arc<dyn StoreHarness>) {
    let Some(gauge) = harness.gauge() else { return };
    // PostgreSQL can't tell a sequence that was never used from one that gave out its first number.
    Scene::new(harness.clone()).await.commit_key("a", 1).await;
    gauge
        .set_classes(&[class("slow", ">", between(10, 1_010))])
        .await
        .unwrap();
    let figures = Figures {
        measured: tokio::time::Instant::now(),
        at: gauge.glance(1).await.unwrap().at,
        drained: 100.0,
        classes: vec![(510, Some(Timestamp::now() - SignedDuration::from_secs(90)))],
    };
    // A database without a sequence relies on figures for a short time only.
    eventually("the figures are told", || async {
        gauge.note(&figures).await.unwrap();
        let slow = standings(&*harness).await.remove(0);
        let told = slow.pending == 510;
        if told {
            let age = slow.oldest_age.unwrap().as_secs();
            assert!((89..3_600).contains(&age), "{age}");
        }
        told
    })
    .await;
    let glance = gauge.glance(1).await.unwrap();
    assert_eq!((glance.noted_at, glance.noted_pending), (figures.at, 510));
    assert!(glance.age.is_some_and(|age| age < LONG), "{glance:?}");
}
