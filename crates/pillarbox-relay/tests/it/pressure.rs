//! Backpressure works the same on every database. Above a limit, a whole batch is refused, with figures. New
//! figures of the relay end the refusal.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use mongodb::Client;
use pillarbox::{EnqueueError, Enqueued, Event, Limits, Outbox, enqueue::MongodbClock, pressure::Limit};
use pillarbox_relay::{
    Settlement,
    connect::{self, DatabaseOptions, OpenStore},
    pressure::{Class, Figures, Keeper, Level, Standing},
    route::Pattern,
    store::{PageLimit, admin::AdminEnqueueError},
};
use pillarbox_testkit::{
    servers,
    wait::{PATIENCE, until, until_ok},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Longer than a producer uses what it has read.
const KNOWN_FOR: Duration = Duration::from_secs(6);
const HARD: u64 = 10;
/// The delay half way between the limits. SQLite never delays.
const DELAY: Option<Duration> = Some(Duration::from_millis(50));

struct Place {
    open: OpenStore,
    /// Only on MongoDB.
    producer: Option<Producer>,
}

/// A producer on MongoDB. Its knowledge ages by a clock that stands still at first.
struct Producer {
    client: Client,
    outbox: Outbox,
    clock: MongodbClock,
}

impl Producer {
    async fn new(url: &str) -> Self {
        let clock = MongodbClock::stopped();
        Self {
            client: Client::with_uri_str(url).await.unwrap(),
            outbox: Outbox::by_mongodb_clock(clock.clone()),
            clock,
        }
    }

    async fn enqueue(&self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        let mut session = self.client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        let enqueued = self.outbox.enqueue_all(&mut session, events).await?;
        session.commit_transaction().await.unwrap();
        Ok(enqueued)
    }
}

impl Place {
    async fn new(url: &str) -> Self {
        let open = connect::store(&DatabaseOptions::new(url)).unwrap();
        open.admin.migrate().await.unwrap();
        let producer = match url.starts_with("mongodb:") {
            true => Some(Producer::new(url).await),
            false => None,
        };
        Self { open, producer }
    }

    async fn enqueue(&self, topics: &[&str]) -> Result<Vec<Enqueued>, EnqueueError> {
        let events: Vec<Event> = topics
            .iter()
            .map(|topic| Event::to(*topic).event_type("X").aggregate("thing", "1"))
            .collect();
        if let Some(producer) = &self.producer {
            return producer.enqueue(&events).await;
        }
        match self.open.admin.enqueue(&Limits::default(), &events).await {
            Ok(enqueued) => Ok(enqueued),
            Err(AdminEnqueueError::Refused(error)) => Err(error),
            Err(AdminEnqueueError::Store(error)) => panic!("{}", error.chain()),
        }
    }

    async fn is_refused(&self, topics: &[&str]) -> bool {
        match self.enqueue(topics).await {
            Ok(_) => false,
            Err(EnqueueError::Busy {
                class,
                pending,
                limit,
                retry_after,
                ..
            }) => {
                assert_eq!((&*class, limit), ("bulk", HARD));
                assert!(
                    pending >= HARD && retry_after >= Duration::from_millis(250),
                    "{pending} {retry_after:?}"
                );
                true
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// Sets the classes. On MongoDB it also advances the clock by the seconds after which the producer must
    /// read them.
    async fn set_classes(&self, classes: &[Class]) {
        self.open
            .gauge
            .as_ref()
            .unwrap()
            .set_classes(classes)
            .await
            .unwrap();
        if let Some(producer) = &self.producer {
            producer.clock.advance(KNOWN_FOR);
        }
    }

    async fn pending(&self) -> u64 {
        self.open.admin.status().await.unwrap().pending
    }

    /// The state of a class as `status` shows it.
    async fn told(&self, class: &str) -> Option<Standing> {
        let status = self.open.admin.status().await.unwrap();
        status.pressure.into_iter().find(|told| told.class == class)
    }

    async fn standing(&self, class: &str) -> Standing {
        self.told(class).await.expect("`status` does not show the class")
    }

    fn keep(&self) -> CancellationToken {
        let stop = CancellationToken::new();
        let keeper = Keeper {
            gauge: self.open.gauge.clone().unwrap(),
            classes: classes(),
        };
        tokio::spawn(keeper.keep(stop.clone()));
        stop
    }

    async fn until_taken(&self, topic: &str) {
        until("the event is accepted", async || !self.is_refused(&[topic]).await).await;
    }

    /// Delivers everything, as a relay would.
    async fn deliver(&self) {
        let (store, relay, ttl) = (&self.open.store, Uuid::now_v7(), Duration::from_secs(60));
        store.heartbeat(relay, "relay", ttl, &[]).await.unwrap();
        let mut held = store.take_lanes(relay, 256, ttl).await.unwrap();
        let limit = PageLimit {
            events: 1_000,
            bytes: 1 << 20,
            payload_bytes_max: 1 << 20,
        };
        let read = store.reader(&held).next(limit).await.unwrap();
        let settlement = Settlement {
            published: read.events.iter().map(|event| event.seq).collect(),
            ..Settlement::default()
        };
        store.settle(&held, &settlement).await.unwrap();
        // No other transaction is open here, so everything up to the last seq is decided.
        let last = read.events.last().map_or(0, |event| event.seq);
        for lane in &mut held {
            lane.low_mark = lane.low_mark.max(last);
        }
        store.heartbeat(relay, "relay", ttl, &held).await.unwrap();
        store.leave(relay).await.unwrap();
    }
}

fn classes() -> Vec<Class> {
    let class = |name: &str, topic: &str, hard| Class {
        name: name.into(),
        topics: vec![Pattern::new(topic).unwrap()],
        limit: Limit {
            soft: None,
            hard,
            max_delay: Duration::ZERO,
        },
    };
    vec![
        class("bulk", "bulk.>", Some(HARD)),
        class("money", "money.*", None),
    ]
}

/// There is no relay, but producers still know how much was written.
async fn too_much_is_refused_whole(place: &Place) {
    for _ in 0..2 * HARD {
        assert!(
            !place.is_refused(&["bulk.a"]).await,
            "nothing may be limited without classes"
        );
    }
    place.deliver().await;
    place.set_classes(&classes()).await;
    let mut taken = 0;
    while !place.is_refused(&["bulk.a"]).await {
        taken += 1;
        assert!(taken <= HARD, "the limit holds");
    }
    // PostgreSQL can't distinguish a sequence that was never used from one at its first value.
    assert!(taken >= HARD - 1, "{taken}");
    let before = place.pending().await;
    assert!(place.is_refused(&["money.a", "bulk.a", "other"]).await);
    assert_eq!(place.pending().await, before, "all or none");
    assert!(!place.is_refused(&["money.a"]).await, "never refused");
    assert!(!place.is_refused(&["other"]).await, "no class matches it");
    let bulk = place.standing("bulk").await;
    assert_eq!(
        (bulk.producers, bulk.soft, bulk.hard),
        (Level::Refused, None, Some(HARD))
    );
    assert!(bulk.pending >= HARD && bulk.retry_after.is_some(), "{bulk:?}");
    let money = place.standing("money").await;
    assert_eq!(
        (money.producers, money.hard, money.retry_after),
        (Level::Free, None, None)
    );
    place.set_classes(&classes()[..1]).await;
    assert_eq!(place.told("money").await, None);
    place.set_classes(&[]).await;
    assert_eq!(place.open.admin.status().await.unwrap().pressure, []);
    for _ in 0..2 * HARD {
        assert!(!place.is_refused(&["bulk.a"]).await, "no class is left");
    }
}

async fn new_figures_of_the_relay_end_a_refusal(place: &Place) {
    place.deliver().await;
    // From here on, the relay's figures and the producer's knowledge use the same time.
    if let Some(producer) = &place.producer {
        producer.clock.start();
    }
    let stop = place.keep();
    // In MongoDB, it can take seconds until a process sees that there are limits again.
    until("limits take effect", async || place.is_refused(&["bulk.a"]).await).await;
    place.deliver().await;
    place.until_taken("bulk.a").await;
    // The relay counts the same. Nothing changes until something is delivered.
    until("there are figures", async || {
        place.is_refused(&["bulk.a"]).await;
        // The age is known only from counting, and the relay counts only from the limit on.
        let bulk = place.told("bulk").await;
        bulk.is_some_and(|bulk| bulk.oldest_age.is_some())
    })
    .await;
    assert!(place.is_refused(&["bulk.a"]).await);
    let bulk = place.standing("bulk").await;
    assert!(
        bulk.producers == Level::Refused && bulk.pending >= HARD,
        "{bulk:?}"
    );
    place.deliver().await;
    place.until_taken("bulk.a").await;
    let bulk = place.standing("bulk").await;
    assert!(
        bulk.producers == Level::Free && bulk.pending < HARD && bulk.retry_after.is_none(),
        "{bulk:?}"
    );
    // Events of other classes count against a class only until the relay's next look.
    for _ in 0..3 * HARD {
        assert!(!place.is_refused(&["money.a"]).await);
    }
    place.until_taken("bulk.a").await;
    stop.cancel();
}

/// Half way between the limits.
async fn status_shows_which_classes_are_slowed(place: &Place, delay: Option<Duration>) {
    place.deliver().await;
    let limit = Limit {
        soft: Some(10),
        hard: Some(1_010),
        max_delay: Duration::from_millis(100),
    };
    let slow = Class {
        name: "slow".into(),
        topics: Vec::new(),
        limit,
    };
    place.set_classes(&[slow]).await;
    let figures = Figures {
        measured: tokio::time::Instant::now(),
        at: place.open.gauge.as_ref().unwrap().glance(1).await.unwrap().at,
        drained: 100.0,
        classes: vec![(510, Some(Timestamp::now() - Duration::from_secs(90)))],
    };
    let slow = until_ok(async || {
        place.open.gauge.as_ref().unwrap().note(&figures).await.unwrap();
        let slow = place.standing("slow").await;
        // A database without a sequence does not use the figures for long.
        match slow.pending {
            0 => Err(format!("{slow:?}")),
            _ => Ok(slow),
        }
    })
    .await;
    let level = delay.map_or(Level::Free, |_| Level::Slowed);
    assert_eq!((slow.producers, slow.pending, slow.delay), (level, 510, delay));
    assert_eq!((slow.soft, slow.hard), (Some(10), Some(1_010)));
    let age = slow.oldest_age.unwrap();
    assert!((90..90 + PATIENCE.as_secs()).contains(&age.as_secs()), "{age:?}");
    place.set_classes(&[]).await;
}

async fn all(url: &str, delay: Option<Duration>) {
    let place = Arc::new(Place::new(url).await);
    too_much_is_refused_whole(&place).await;
    status_shows_which_classes_are_slowed(&place, delay).await;
    new_figures_of_the_relay_end_a_refusal(&place).await;
}

#[tokio::test]
async fn postgres_producers_feel_the_pressure() {
    let Some(server) = servers::postgres().await else {
        return;
    };
    all(&server.database().await, DELAY).await;
}

#[tokio::test]
async fn sqlite_producers_feel_the_pressure() {
    let folder = tempfile::tempdir().unwrap();
    all(
        &format!("sqlite:{}", folder.path().join("outbox.db").display()),
        None,
    )
    .await;
}

#[tokio::test]
async fn mongodb_producers_feel_the_pressure() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    all(&server.database(), DELAY).await;
}
