//! Backpressure, the same on every database: too much is refused, whole and with its figures, and the relay's word frees again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use pillarbox::{EnqueueError, Enqueued, Event, Limits, pressure::Limit};
use pillarbox_relay::{
    Settlement,
    connect::{self, DatabaseOptions, OpenStore},
    pressure::{Class, Figures, Keeper, Level, Standing},
    route::Pattern,
    store::{PageLimit, admin::AdminEnqueueError},
};
use pillarbox_testkit::servers;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const DEADLINE: Duration = Duration::from_secs(30);
/// A producer relies on what it knows for less than this.
const KNOWN_FOR: Duration = Duration::from_millis(5_100);
const HARD: u64 = 10;
/// What a producer waits half way; in SQLite none does.
const DELAY: Option<Duration> = Some(Duration::from_millis(50));

struct Place {
    open: OpenStore,
    url: String,
}

impl Place {
    async fn new(url: &str) -> Self {
        let open = connect::store(&DatabaseOptions::new(url)).unwrap();
        open.admin.migrate().await.unwrap();
        let url = url.to_owned();
        Self { open, url }
    }

    async fn enqueue(&self, topics: &[&str]) -> Result<Vec<Enqueued>, EnqueueError> {
        let events: Vec<Event> = topics
            .iter()
            .map(|topic| Event::to(*topic).event_type("X").aggregate("thing", "1"))
            .collect();
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

    fn is_mongodb(&self) -> bool {
        self.url.starts_with("mongodb:")
    }

    /// And the producer knows. In MongoDB that takes seconds.
    async fn set_classes(&self, classes: &[Class]) {
        self.open.gauge.set_classes(classes).await.unwrap();
        if self.is_mongodb() {
            tokio::time::sleep(KNOWN_FOR).await;
        }
    }

    async fn pending(&self) -> u64 {
        self.open.admin.status().await.unwrap().pending
    }

    /// What people are told of a class.
    async fn told(&self, class: &str) -> Option<Standing> {
        let status = self.open.admin.status().await.unwrap();
        status.pressure.into_iter().find(|told| told.class == class)
    }

    async fn standing(&self, class: &str) -> Standing {
        self.told(class).await.expect("the class is told of")
    }

    fn keep(&self) -> CancellationToken {
        let stop = CancellationToken::new();
        let keeper = Keeper {
            gauge: self.open.gauge.clone(),
            classes: classes(),
        };
        tokio::spawn(keeper.keep(stop.clone()));
        stop
    }

    async fn until_taken(&self, topic: &str) {
        let taken = async {
            while self.is_refused(&[topic]).await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(DEADLINE, taken).await.unwrap();
    }

    /// Everything is delivered, as a relay would have done it.
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
        // Nothing else is open here.
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

/// Without a relay: what is written is known all the same.
async fn too_much_is_refused_whole(place: &Place) {
    for _ in 0..2 * HARD {
        assert!(
            !place.is_refused(&["bulk.a"]).await,
            "nothing is limited unless asked for"
        );
    }
    place.deliver().await;
    place.set_classes(&classes()).await;
    let began = Instant::now();
    let mut taken = 0;
    while !place.is_refused(&["bulk.a"]).await {
        taken += 1;
        assert!(taken <= HARD, "the limit holds");
    }
    // In MongoDB what was written just before a new count, a second after the last, counts twice.
    let counted_again = place.is_mongodb() && began.elapsed().as_millis() > 900;
    // PostgreSQL can't tell a seq that was never taken from the first.
    assert!(taken >= HARD - 1 || counted_again, "{taken}");
    let before = place.pending().await;
    assert!(place.is_refused(&["money.a", "bulk.a", "other"]).await);
    assert_eq!(place.pending().await, before, "all or none");
    assert!(!place.is_refused(&["money.a"]).await, "never refused");
    assert!(!place.is_refused(&["other"]).await, "of no class");
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
        assert!(!place.is_refused(&["bulk.a"]).await, "configured away");
    }
}

async fn the_relays_word_frees_again(place: &Place) {
    place.deliver().await;
    let stop = place.keep();
    // In MongoDB it may take a process seconds to see that there are limits again.
    let felt = async {
        while !place.is_refused(&["bulk.a"]).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, felt).await.unwrap();
    place.deliver().await;
    place.until_taken("bulk.a").await;
    // The relay counts the same, and as long as nothing is delivered nothing changes.
    let figures = async {
        // An age is known from counting alone, and that begins when as much waits as may.
        while place
            .told("bulk")
            .await
            .is_none_or(|bulk| bulk.oldest_age.is_none())
        {
            place.is_refused(&["bulk.a"]).await;
        }
    };
    tokio::time::timeout(DEADLINE, figures).await.unwrap();
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
    // What others write is not held against a class for longer than until the relay looks.
    for _ in 0..3 * HARD {
        assert!(!place.is_refused(&["money.a"]).await);
    }
    place.until_taken("bulk.a").await;
    stop.cancel();
}

/// Half way between the limits.
async fn people_are_told_who_is_slowed(place: &Place, delay: Option<Duration>) {
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
        at: place.open.gauge.glance(1).await.unwrap().at,
        drained: 100.0,
        classes: vec![(510, Some(Timestamp::now() - Duration::from_secs(90)))],
    };
    let noted = async {
        loop {
            place.open.gauge.note(&figures).await.unwrap();
            let slow = place.standing("slow").await;
            // A database without a sequence does not rely on them for long.
            if slow.pending > 0 {
                return slow;
            }
        }
    };
    let slow = tokio::time::timeout(DEADLINE, noted).await.unwrap();
    let level = delay.map_or(Level::Free, |_| Level::Slowed);
    assert_eq!((slow.producers, slow.pending, slow.delay), (level, 510, delay));
    assert_eq!((slow.soft, slow.hard), (Some(10), Some(1_010)));
    let age = slow.oldest_age.unwrap();
    assert!((90..90 + DEADLINE.as_secs()).contains(&age.as_secs()), "{age:?}");
    place.set_classes(&[]).await;
}

async fn all(url: &str, delay: Option<Duration>) {
    let place = Arc::new(Place::new(url).await);
    too_much_is_refused_whole(&place).await;
    people_are_told_who_is_slowed(&place, delay).await;
    the_relays_word_frees_again(&place).await;
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
