//! NATS is away, or its replies are lost, for the duration of a campaign, under a steady load.

use std::time::{Duration, SystemTime};

use async_nats::jetstream::Message;
use pillarbox_testkit::{
    ledger::Verdict,
    proxy::{Fault, Proxy},
    servers::{Nats, postgres},
    torture::Campaign,
};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use super::harness::{Config, Producer, STREAM, Scene, messages, read_stream};

const EVENTS_PER_SECOND: u64 = 500;
const KEYS: u64 = 97;
/// How long the stream remembers ids. After a longer outage, events that were in flight at its start can be
/// stored twice.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// 500 events a second, in transactions of five.
struct SteadyLoad {
    stop: CancellationToken,
    task: JoinHandle<(u64, Duration)>,
}

impl SteadyLoad {
    fn start(scene: &Scene) -> Self {
        const TOGETHER: u64 = 5;
        let (stop, producer) = (CancellationToken::new(), Producer::new(scene));
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let began = Instant::now();
            // A late tick is made up for, so the rate holds over the whole time.
            let mut ticks =
                tokio::time::interval(Duration::from_millis(1_000 * TOGETHER / EVENTS_PER_SECOND));
            let mut placed = 0;
            while !stopped.is_cancelled() {
                ticks.tick().await;
                let key = format!("key-{}", placed / TOGETHER % KEYS);
                producer.place(&key, TOGETHER).await;
                placed += TOGETHER;
            }
            (placed, began.elapsed())
        });
        Self { stop, task }
    }

    /// Returns how many events it wrote, and the rate per second.
    async fn stop(self) -> (u64, f64) {
        self.stop.cancel();
        let (placed, took) = self.task.await.unwrap();
        (placed, placed as f64 / took.as_secs_f64())
    }
}

/// A scene whose relay reaches NATS through a proxy. `None`: not installed.
async fn through_a_proxy(publish_timeout_ms: u64) -> Option<(Scene, Nats, Proxy)> {
    let (nats, postgres) = (Nats::start().await?, postgres().await?);
    let proxy = Proxy::in_front_of(&nats.url()).await;
    let mut config = Config::new(&postgres.database().await, &proxy.through(&nats.url()));
    config.publish_timeout_ms = publish_timeout_ms;
    let scene = Scene::with(config);
    scene.prepare().await;
    Some((scene, nats, proxy))
}

async fn moves(scene: &Scene) {
    let published = "select count(*) from outbox_events where status = 'published'";
    let before = scene.count(published).await;
    scene.until(published, |now| now >= before + 500).await;
}

/// Checks that every event is delivered, none was charged and none died. The stream may contain copies.
async fn assert_an_outage_cost_nothing(scene: &Scene, nats: &Nats) -> Verdict {
    let unsettled = "select count(*) from outbox_events where status <> 'published'";
    scene.moves_until(unsettled, |waiting| waiting == 0).await;
    let charged = "select count(*) from outbox_events where attempts <> 0";
    assert_eq!(scene.count(charged).await, 0, "an outage must charge no event");
    let dead = "select count(*) from outbox_events_dead";
    assert_eq!(scene.count(dead).await, 0, "an outage must make no dead letter");
    read_stream(&nats.url(), STREAM, &scene.ledger).await;
    let verdict = scene.ledger.verdict();
    assert!(verdict.is_whole(), "{verdict}");
    verdict
}

fn stored_at(message: &Message) -> SystemTime {
    let nanoseconds = message.info().unwrap().published.unix_timestamp_nanos();
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds.try_into().unwrap())
}

/// NATS is away for the whole budget under 500 events/s: `--seconds 180` is three minutes without it.
#[tokio::test(flavor = "multi_thread")]
async fn torture_nats_is_away_under_load() {
    let campaign = Campaign::begin("nats_is_away_under_load");
    let Some((scene, nats, proxy)) = through_a_proxy(5_000).await else {
        return;
    };
    let mut relay = scene.relay("relay").await;
    let load = SteadyLoad::start(&scene);
    moves(&scene).await;

    proxy.set(Fault::Refuse).await;
    let left = Instant::now();
    relay.says("the sink is away: pausing it").await;
    tokio::time::sleep(campaign.budget().saturating_sub(left.elapsed())).await;
    let (away, returned) = (left.elapsed(), SystemTime::now());
    proxy.set(Fault::Pass).await;
    moves(&scene).await;

    let (placed, rate) = load.stop().await;
    let verdict = assert_an_outage_cost_nothing(&scene, &nats).await;
    if away < DUPLICATE_WINDOW {
        assert_eq!(verdict.duplicated, 0);
    }
    // The stream's clock is the clock of this machine.
    let stored = messages(&nats.url(), STREAM).await;
    let first = stored.iter().map(stored_at).find(|at| *at >= returned).unwrap();
    let waited = first.duration_since(returned).unwrap();
    println!(
        "{verdict}; {placed} events, {rate:.0} a second; away for {:.1} s; the first delivery {:.2} s after its return",
        away.as_secs_f64(),
        waited.as_secs_f64()
    );
    // In a run with other tests, this process may wait for a processor longer than the relay waits for NATS.
    let patience = if campaign.is_short() { 20 } else { 2 };
    assert!(waited < Duration::from_secs(patience), "it took {waited:?}");
    relay.stop().await;
}

/// NATS stores everything, but its replies are dropped, for 30 s at a time (or the budget, if shorter).
#[tokio::test(flavor = "multi_thread")]
async fn torture_replies_of_nats_are_dropped_under_load() {
    const DEAF: Duration = Duration::from_secs(30);
    let campaign = Campaign::begin("replies_of_nats_are_dropped_under_load");
    let Some((scene, nats, proxy)) = through_a_proxy(1_000).await else {
        return;
    };
    let mut relay = scene.relay("relay").await;
    let load = SteadyLoad::start(&scene);
    let (mut times, mut unheard) = (0_u64, 0);
    while campaign.goes_on(times, 1) {
        moves(&scene).await;
        times += 1;
        proxy.set(Fault::DropReplies).await;
        let deaf = Instant::now();
        let settled = "select count(*) from outbox_events where status = 'published'";
        relay
            .says_times("no acknowledgement within", times as usize)
            .await;
        tokio::time::sleep(campaign.budget().min(DEAF).saturating_sub(deaf.elapsed())).await;
        let (stored, settled) = (
            messages(&nats.url(), STREAM).await.len() as i64,
            scene.count(settled).await,
        );
        assert!(
            stored > settled,
            "no event was stored without an acknowledgement: {stored} stored, {settled} settled"
        );
        unheard += stored - settled;
        proxy.set(Fault::Pass).await;
    }
    moves(&scene).await;
    let (placed, rate) = load.stop().await;
    let verdict = assert_an_outage_cost_nothing(&scene, &nats).await;
    assert_eq!(verdict.duplicated, 0, "the stream must hold each event once");
    println!(
        "{verdict}; {placed} events, {rate:.0} a second; {times} times deaf; {unheard} events were stored unheard"
    );
    relay.stop().await;
}
