//! A few keys that keep failing, among many that don't.

use async_nats::jetstream::{self, stream};
use pillarbox::{Event, Outbox, RetryOverrides};
use pillarbox_testkit::{servers::Nats, torture::Campaign};

use super::harness::{Producer, STREAM, Scene, event, messages, read_stream};

/// Events on `late.>` fail until the stream `LATE` exists.
async fn with_a_stream_missing() -> Option<(Scene, Nats)> {
    Scene::start(|config| {
        config.routes = format!(
            "[{{ topic: 'orders.>', sink: events, stream: {STREAM} }}, {{ topic: 'late.>', sink: events, stream: LATE }}]"
        );
    })
    .await
}

async fn mend(nats: &Nats) {
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let late = stream::Config {
        name: "LATE".to_owned(),
        subjects: vec!["late.>".to_owned()],
        ..Default::default()
    };
    context.create_stream(late).await.unwrap();
}

/// Writes the event with which a key starts to fail. It does not die before the test ends.
async fn place_a_bad_one(producer: &Producer, key: &str) {
    let mut bad: Event = event(key, 0).retry(RetryOverrides::default().max_attempts(1_000));
    bad.topic = "late.placed".to_owned();
    let mut tx = producer.begin().await;
    Outbox::default().enqueue(&mut tx, &bad).await.unwrap();
    tx.commit().await.unwrap();
}

const PUBLISHED: &str = "select count(*) from outbox_events where status = 'published'";
const HELD: &str = "select count(*) from outbox_events where status = 'held' and attempts = 0";

/// One key in 1,000 fails during the whole campaign; all others are delivered.
///
/// `bench poison` measures how fast.
#[tokio::test(flavor = "multi_thread")]
async fn torture_one_key_in_a_thousand_is_poisonous() {
    const KEYS: u64 = 2_000;
    let campaign = Campaign::begin("one_key_in_a_thousand_is_poisonous");
    let Some((scene, nats)) = with_a_stream_missing().await else {
        return;
    };
    let producer = Producer::new(&scene);
    let relay = scene.relay("relay").await;
    let bad = ["key-7", "key-1007"];
    for key in bad {
        place_a_bad_one(&producer, key).await;
    }
    let (mut placed, mut good, mut held) = (0, 0, 0);
    while campaign.goes_on(placed, 3_000) {
        // All keys in turn, the bad ones too.
        for _ in 0..KEYS / 40 {
            let mut tx = producer.begin().await;
            let mut written = Vec::new();
            for n in placed..placed + 10 {
                let key = format!("key-{}", n % KEYS);
                written.push(producer.write(&mut tx, &key, 1).await.unwrap());
                *(if bad.contains(&key.as_str()) {
                    &mut held
                } else {
                    &mut good
                }) += 1;
            }
            tx.commit().await.unwrap();
            written.iter().for_each(|written| producer.committed(written));
            placed += 10;
        }
        scene.until(PUBLISHED, |published| published == good).await;
        scene.until(HELD, |waiting| waiting == held).await;
    }
    let failing = "select count(*) from outbox_events where status = 'failed' and attempts = 0";
    assert_eq!(scene.count(failing).await, bad.len() as i64);
    assert!(held > 0);
    mend(&nats).await;
    scene.assert_whole().await;
    assert_eq!(messages(&nats.url(), "LATE").await.len(), bad.len());
    println!("{good} events of good keys and {held} held behind a bad one, all delivered");
    relay.stop().await;
}

/// 100,000 events wait behind a bad one (10,000 in the short run): the relay grows by less than 50 MB.
///
/// It is measured until they are sent.
#[tokio::test(flavor = "multi_thread")]
async fn torture_held_events_cost_little_memory() {
    const GROWTH_BYTES_MAX: u64 = 50_000_000;
    let campaign = Campaign::begin("held_events_cost_little_memory");
    let Some((scene, nats)) = with_a_stream_missing().await else {
        return;
    };
    let held = if campaign.is_short() { 10_000 } else { 100_000 };
    let producer = Producer::new(&scene);
    let relay = scene.relay("relay").await;
    // Warm up: any growth from here on is for the held events.
    for n in 0..20 {
        producer.place(&format!("key-{n}"), 200).await;
    }
    scene.until(PUBLISHED, |published| published == 4_000).await;
    place_a_bad_one(&producer, "bad").await;
    producer.place("bad", 100).await;
    scene.until(HELD, |waiting| waiting == 100).await;
    let (before, _) = relay.memory();

    for _ in 0..held / 1_000 {
        producer.place("bad", 1_000).await;
    }
    scene.moves_until(HELD, |waiting| waiting == 100 + held).await;
    let (now, peak) = relay.memory();
    // Other keys are still delivered.
    producer.place("key-0", 200).await;
    scene.until(PUBLISHED, |published| published == 4_200).await;
    mend(&nats).await;
    scene.moves_until(HELD, |waiting| waiting == 0).await;
    scene.settled().await;
    let at_most = peak.max(relay.memory().1);
    let megabytes = |bytes: u64| bytes.saturating_sub(before) as f64 / 1e6;
    println!(
        "{held} held events: {:.1} MB more than the {:.1} MB before; {:.1} MB more at most, {:.1} MB while they went out",
        megabytes(now),
        before as f64 / 1e6,
        megabytes(peak),
        megabytes(at_most)
    );
    assert!(
        at_most - before < GROWTH_BYTES_MAX,
        "{held} held events cost too much memory"
    );
    read_stream(&nats.url(), STREAM, &scene.ledger).await;
    let verdict = scene.ledger.verdict();
    assert!(verdict.is_whole() && verdict.duplicated == 0, "{verdict}");
    relay.stop().await;
}
