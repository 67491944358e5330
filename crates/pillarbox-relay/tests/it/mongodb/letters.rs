//! Dead letters are replayed while a relay settles.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use mongodb::bson::{Document, doc};
use pillarbox_relay::{
    Settlement,
    dead::{Actor, DeadFilter, ReplayAs},
};
use pillarbox_testkit::{
    contract::store::{
        StoreHarness,
        scene::{Scene, dead, failed, parked},
    },
    servers,
};

use super::harness::MongoHarness;

const KEYS: usize = 8;
const EVENTS: usize = 6;

/// Both write to the documents of the lanes, so of two at the same time one must retry. Neither may report
/// that as an error, and replayed events must be sent before the events that wait behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replays_and_settlements_of_the_same_keys_wait_for_each_other() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = Arc::new(MongoHarness::new(server).await);
    let parked_ones = harness.database().collection::<Document>("outbox_events_parked");
    let scene = Scene::new(harness as Arc<dyn StoreHarness>).await;
    let mut keys = Vec::new();
    for key in 0..KEYS {
        keys.push(scene.stored(&format!("key-{key}"), EVENTS).await);
    }
    let deaths = keys.iter().flat_map(|events| &events[..2]);
    let deaths: Vec<_> = deaths.map(|event| dead(event, 1)).collect();
    scene
        .settle(Settlement {
            dead: deaths,
            ..Settlement::default()
        })
        .await;
    let letters = scene.harness.dead_letters().unwrap();
    let actor = Actor {
        by: "somebody".into(),
        why: None,
    };
    let replays = keys.iter().flat_map(|events| &events[..2]).map(|event| {
        let (letters, actor, one) = (
            letters.clone(),
            actor.clone(),
            DeadFilter::one(event.event.id.clone()),
        );
        tokio::spawn(async move { letters.replay(&one, 1, ReplayAs::Same, &actor).await })
    });
    let replays: Vec<_> = replays.collect();
    let settlements = keys.iter().flat_map(|events| {
        [
            Settlement {
                failed: vec![failed(&events[2], 1, Duration::ZERO)],
                held: events[3..5].iter().map(parked).collect(),
                ..Settlement::default()
            },
            Settlement {
                held: vec![parked(&events[5])],
                ..Settlement::default()
            },
        ]
    });
    let settlements = settlements.map(|settlement| {
        let (store, held) = (scene.store.clone(), scene.held.clone());
        tokio::spawn(async move { store.settle(&held, &settlement).await })
    });
    for settled in join_all(settlements.collect::<Vec<_>>()).await {
        settled.unwrap().unwrap();
    }
    for replayed in join_all(replays).await {
        assert_eq!(replayed.unwrap().unwrap(), 1);
    }
    let due = scene.due().await.events;
    for events in &keys {
        let key = events[0].event.key();
        let of_key = due.iter().filter(|due| due.event.event.key() == key);
        let seqs: Vec<_> = of_key.map(|due| due.event.seq).collect();
        let expected: Vec<_> = events.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, expected, "all of {key}, in order");
        // Each of the two saw the other's events. Otherwise both would have made one event due.
        let due = doc! { "key": key, "due_at": { "$exists": true } };
        assert_eq!(parked_ones.count_documents(due).await.unwrap(), 1, "{key}");
    }
}
