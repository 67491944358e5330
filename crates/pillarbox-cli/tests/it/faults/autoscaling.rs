//! An autoscaler that follows `/v1/scale`: it starts relays under load and stops them afterwards.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_nats::jetstream::{self, consumer::pull::OrderedConfig};
use futures::StreamExt;
use pillarbox_testkit::{
    proxy::{Fault, Proxy},
    servers::{self, Nats},
    torture::Campaign,
};
use tokio::{task::JoinHandle, time::Instant};

use super::harness::{Config, PATIENCE, Producer, Relay, STREAM, Scene, get};

const LEASE: Duration = Duration::from_secs(5);
const RELAYS_MAX: usize = 4;
/// The broker is this far away, and a relay has only so many events under way. So one relay delivers about 200
/// events per second.
const DELAY: Duration = Duration::from_millis(100);
const WINDOW: u32 = 40;
/// Each producer writes 10 events in each pause: together 600 events per second.
const PRODUCERS: u64 = 3;
const PAUSE: Duration = Duration::from_millis(50);

/// When events arrive in the stream.
struct Arrivals {
    reading: JoinHandle<()>,
    count: Arc<AtomicUsize>,
    times: Arc<std::sync::Mutex<Vec<Instant>>>,
}

impl Arrivals {
    async fn watch(nats: &str) -> Self {
        let context = jetstream::new(async_nats::connect(nats).await.unwrap());
        let stream = context.get_stream(STREAM).await.unwrap();
        let consumer = stream.create_consumer(OrderedConfig::default()).await.unwrap();
        let mut messages = consumer.messages().await.unwrap();
        let (count, times) = (
            Arc::<AtomicUsize>::default(),
            Arc::<std::sync::Mutex<Vec<_>>>::default(),
        );
        let (counted, noted) = (count.clone(), times.clone());
        let reading = tokio::spawn(async move {
            while let Some(message) = messages.next().await {
                message.unwrap();
                noted.lock().unwrap().push(Instant::now());
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self {
            reading,
            count,
            times,
        }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The longest time without an event.
    fn longest_pause(self) -> Duration {
        self.reading.abort();
        let times = self.times.lock().unwrap();
        let pauses = times.windows(2).map(|pair| pair[1] - pair[0]);
        pauses.max().unwrap_or_default()
    }
}

/// Writes events of many keys until the handle is stopped. Returns the number of events.
async fn write(producer: Producer, writer: u64, until: Instant) -> usize {
    let mut written = 0;
    let mut next = Instant::now();
    for round in 0_u64.. {
        if Instant::now() >= until {
            break;
        }
        let key = format!("key-{writer}-{}", round % 200);
        for nth in 0..5 {
            producer.place(&format!("{key}-{nth}"), 2).await;
            written += 2;
        }
        next += PAUSE;
        tokio::time::sleep_until(next).await;
    }
    written
}

/// The relays, and what an autoscaler does with them.
struct Fleet {
    others: Vec<Relay>,
    address: String,
    most: usize,
}

impl Fleet {
    /// Asks the first relay how many there should be, and starts or stops others.
    async fn follow(&mut self, scene: &Scene) -> usize {
        let (code, scale) = get(&self.address, "/v1/scale").await;
        if code == 503 {
            // The relay has just started.
            return self.others.len() + 1;
        }
        assert_eq!(code, 200, "{scale}");
        let desired = scale["desired_relays"].as_u64().unwrap() as usize;
        while self.others.len() + 1 < desired {
            self.others
                .push(scene.relay(&format!("more-{}", self.others.len())).await);
        }
        while self.others.len() + 1 > desired {
            self.others.pop().unwrap().stop().await;
        }
        self.most = self.most.max(desired);
        desired
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn torture_an_autoscaler_adds_relays_under_load_and_removes_them() {
    let campaign = Campaign::begin("an_autoscaler_adds_relays_under_load_and_removes_them");
    let (Some(postgres), Some(nats)) = (servers::postgres().await, Nats::start().await) else {
        return;
    };
    let far = Proxy::in_front_of(&nats.url()).await;
    let mut config = Config::new(&postgres.database().await, &far.through(&nats.url()));
    config.lease_ms = LEASE.as_millis() as u64;
    config.window_events_max = WINDOW;
    config.monitoring = format!("{{ pending_per_relay: 500, relays_min: 1, relays_max: {RELAYS_MAX} }}");
    let scene = Scene::with(config);
    scene.prepare().await;
    far.set(Fault::Delay(DELAY)).await;
    let (first, address) = scene.serving("first").await;
    let arrivals = Arrivals::watch(&nats.url()).await;
    let mut fleet = Fleet {
        others: Vec::new(),
        address,
        most: 1,
    };

    let mut waves = 0;
    let mut written = 0;
    while campaign.goes_on(waves, 1) {
        let until = Instant::now() + Duration::from_secs(8);
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|writer| tokio::spawn(write(Producer::new(&scene), writer, until)))
            .collect();
        while Instant::now() < until {
            fleet.follow(&scene).await;
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        for producer in producers {
            written += producer.await.unwrap();
        }
        let deadline = Instant::now() + PATIENCE;
        while arrivals.count() < written || fleet.follow(&scene).await > 1 {
            assert!(
                Instant::now() < deadline,
                "{} of {written} events arrived, {} relays run",
                arrivals.count(),
                fleet.others.len() + 1
            );
            fleet.follow(&scene).await;
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        waves += 1;
    }
    assert_eq!(
        fleet.most, RELAYS_MAX,
        "the load never wanted all relays: the test proves nothing"
    );
    far.set(Fault::Pass).await;
    scene.assert_whole().await;
    let pause = arrivals.longest_pause();
    if campaign.is_short() {
        println!("the longest time without an event: {pause:?}");
        assert!(pause < LEASE, "no event arrived for {pause:?}");
    }
    first.stop().await;
}
