//! The cost of an event in commands to the server. Times are printed and not asserted.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use pillarbox::Event;
use pillarbox_relay::Settlement;
use pillarbox_testkit::{
    contract::store::scene::{Scene, event, page, seqs},
    servers,
};

use super::harness::MongoHarness;

const EVENTS: usize = 20_000;
const PAGE: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_events_cost_a_handful_of_commands() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let scene = Scene::new(Arc::new(MongoHarness::new(server).await)).await;
    let start = Instant::now();
    for n in 0..EVENTS / PAGE {
        let payload = format!("{{\"filler\":\"{}\"}}", "x".repeat(280));
        let events: Vec<Event> = (0..PAGE)
            .map(|k| event(&format!("key-{}", (n * PAGE + k) % 5_000)).payload(payload.clone()))
            .collect();
        scene.commit(&events).await;
    }
    let enqueueing = start.elapsed();
    let (mut reading, mut settling, mut logging) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let mut reader = scene.reader();
    let (before, mut read) = (scene.store.statements(), 0);
    while read < EVENTS {
        let start = Instant::now();
        let page = reader.next(page(PAGE)).await.unwrap();
        reading += start.elapsed();
        read += page.events.len();
        let start = Instant::now();
        // Every second page goes into the event log.
        let (is_logged, published) = ((read / PAGE).is_multiple_of(2), seqs(&page.events));
        let settlement = Settlement {
            logged: if is_logged { published.clone() } else { Vec::new() },
            published,
            ..Settlement::default()
        };
        scene.store.settle(&scene.held, &settlement).await.unwrap();
        *(if is_logged { &mut logging } else { &mut settling }) += start.elapsed();
    }
    let commands = scene.store.statements() - before;
    let each = |time: Duration, events: usize| time.as_micros() / events as u128;
    println!(
        "of each of {EVENTS} events: enqueueing {} µs, reading {} µs, settling {} µs, settling with the event log {} µs; \
         {commands} commands in all",
        each(enqueueing, EVENTS),
        each(reading, EVENTS),
        each(settling, EVENTS / 2),
        each(logging, EVENTS / 2)
    );
    // A page and a settlement for each thousand, three more for the event log, and now and then a query for what is
    // decided.
    assert!(commands * 2 <= 11 * (EVENTS / PAGE) as u64, "{commands} commands");
}
