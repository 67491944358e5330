//! The life of an event, and what its entries in the log keep of it.

use std::sync::Arc;

use pillarbox_relay::{
    Settlement, StoredEvent,
    dead::{Actor, DeadFilter, ReplayAs},
    event_log::{LogEntry, life::whole_life},
    settlement::LoggedBy,
};

use super::{
    StoreHarness,
    logging::{entries, entry_ids, log_of},
    scene::*,
};

pub async fn the_life_of_an_event_is_told(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 3).await;
    scene.publish_logged(&events[..1]).await;
    scene.park(&events[1..], LONG).await;
    let life = async |event: &StoredEvent| log.life(&event.event.id).await;

    let published = life(&events[0]).await.unwrap().unwrap();
    let row = published.row.unwrap();
    assert_eq!((row.seq, row.status.as_str()), (events[0].seq, "published"));
    assert!(row.published_at.is_some() && row.failures.is_empty());
    assert_eq!(row.event.unwrap(), events[0].event);
    assert_eq!(entry_ids(&published.entries), [events[0].event.id.clone()]);

    let failing = life(&events[1]).await.unwrap().unwrap();
    let row = failing.row.unwrap();
    assert_eq!((row.status.as_str(), row.attempts), ("failed", 1));
    assert_eq!(row.failures.len(), 1);
    assert_eq!(row.failures[0].sink.as_deref(), Some("events"));
    assert!(row.due_at.is_some() && row.last_error.is_some());
    assert_eq!(failing.entries, vec![]);

    let held = life(&events[2]).await.unwrap().unwrap().row.unwrap();
    assert_eq!((held.status.as_str(), held.due_at), ("held", None));
    assert!(log.life(&pillarbox::EventId::new()).await.unwrap().is_none());
}

/// The side table forgets them when the event is delivered, and the letter when it dies again.
pub async fn failures_before_a_delivery_stay_in_the_log(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let letters = harness.dead_letters();
    let scene = Scene::new(harness).await;
    let event = &scene.stored("a", 1).await[0];
    let fail = async |error: &str, attempts| {
        let mut failed = failed(event, attempts, LONG);
        failed.failure = failure(error);
        scene
            .settle(Settlement {
                failed: vec![failed],
                ..Settlement::default()
            })
            .await;
    };
    let die = async |attempts| {
        let mut died = dead(event, attempts);
        died.logged = true;
        scene
            .settle(Settlement {
                dead: vec![died],
                ..Settlement::default()
            })
            .await;
    };
    let Some(letters) = letters else { return };
    let replay = async || {
        let actor = Actor {
            by: "test".into(),
            why: None,
        };
        let all = DeadFilter::default();
        let replayed = letters.replay(&all, 10, ReplayAs::Same, &actor);
        assert_eq!(replayed.await.unwrap(), 1);
    };
    fail("first", 1).await;
    die(2).await;
    replay().await;
    fail("third", 1).await;
    die(2).await;
    replay().await;
    for (error, attempts) in [("a \"quoted\" one", 1), ("sixth", 2), ("seventh", 3)] {
        fail(error, attempts).await;
    }
    scene
        .settle(Settlement {
            published_parked: vec![parked(event)],
            logged: vec![event.seq],
            logged_by: LoggedBy {
                relay: "one".into(),
                sinks: vec!["events".into()],
            },
            ..Settlement::default()
        })
        .await;
    let told = log.life(&event.event.id).await.unwrap().unwrap().entries;
    let last = &told[2];
    let errors = |entry: &LogEntry| {
        let errors = entry.failures.iter().map(|failure| failure.error.clone());
        errors.collect::<Vec<_>>()
    };
    assert_eq!(errors(&told[0]), ["first", "gave up"]);
    assert_eq!(errors(last), ["a \"quoted\" one", "sixth", "seventh"]);
    assert_eq!(
        (last.sink.as_deref(), last.relay.as_deref()),
        (Some("events"), Some("one"))
    );
    assert_eq!(entries(&*log).await, told, "readers get the same");

    let life = whole_life(&*log, &*letters, &event.event.id)
        .await
        .unwrap()
        .unwrap();
    let steps: Vec<_> = life
        .steps
        .iter()
        .map(|step| match (&*step.what, &step.error) {
            ("failed", Some(error)) => error.clone(),
            (what, _) => what.to_owned(),
        })
        .collect();
    let expected = [
        "committed",
        "first",
        "gave up",
        "dead",
        "replayed",
        "third",
        "gave up",
        "dead",
        "replayed",
        "a \"quoted\" one",
        "sixth",
        "seventh",
        "published",
    ];
    assert_eq!(steps, expected);
}

/// Each delivery has the sink of its own route.
pub async fn an_entry_says_who_delivered_it(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 6).await;
    let deliver = async |events: &[StoredEvent], logged: &[i64], sinks: &[&str]| {
        scene
            .settle(Settlement {
                published: seqs(events),
                logged: logged.to_vec(),
                logged_by: LoggedBy {
                    relay: "one".into(),
                    sinks: sinks.iter().map(|sink| (*sink).into()).collect(),
                },
                ..Settlement::default()
            })
            .await;
    };
    deliver(&events[..2], &seqs(&events[..2]), &["near", "near"]).await;
    deliver(&events[2..4], &seqs(&events[2..4]), &["near", "far"]).await;
    deliver(&events[4..], &[events[5].seq], &["far"]).await;
    let found = entries(&*log).await;
    let sinks: Vec<_> = found.iter().map(|entry| entry.sink.as_deref().unwrap()).collect();
    assert_eq!(sinks, ["near", "near", "near", "far", "far"]);
    assert!(found.iter().all(|entry| entry.relay.as_deref() == Some("one")));
    assert!(found.iter().all(|entry| entry.failures.is_empty()));
}
