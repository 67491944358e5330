//! Backpressure, the same on every database: too much is refused, whole and with its figures, and the relay's word frees again.

use std::{sync::Arc, time::Duration};

use pillarbox::{EnqueueError, Enqueued, Event, Limits, pressure::Limit};
use pillarbox_relay::{
    Settlement,
    connect::{self, DatabaseOptions, OpenStore},
    pressure::{Class, Keeper},
    route::Pattern,
    store::{PageLimit, admin::AdminEnqueueError},
};
use pillarbox_testkit::servers;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const DEADLINE: Duration = Duration::from_secs(30);
const HARD: u64 = 10;

struct Place(OpenStore);

impl Place {
    async fn new(url: &str) -> Self {
        let open = connect::store(&DatabaseOptions::new(url)).unwrap();
        open.admin.migrate().await.unwrap();
        Self(open)
    }

    async fn enqueue(&self, topics: &[&str]) -> Result<Vec<Enqueued>, EnqueueError> {
        let events: Vec<Event> = topics
            .iter()
            .map(|topic| Event::new(*topic, "X", "thing", "1"))
            .collect();
        match self.0.admin.enqueue(&Limits::default(), &events).await {
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

    async fn pending(&self) -> u64 {
        self.0.admin.status().await.unwrap().pending
    }

    fn keep(&self) -> CancellationToken {
        let stop = CancellationToken::new();
        let keeper = Keeper {
            gauge: self.0.gauge.clone(),
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
        let (store, relay, ttl) = (&self.0.store, Uuid::now_v7(), Duration::from_secs(60));
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
    place.0.gauge.set_classes(&classes()).await.unwrap();
    let mut taken = 0;
    while !place.is_refused(&["bulk.a"]).await {
        taken += 1;
        assert!(taken <= HARD, "the limit holds");
    }
    // PostgreSQL can't tell a seq that was never taken from the first.
    assert!(taken >= HARD - 1, "{taken}");
    let before = place.pending().await;
    assert!(place.is_refused(&["money.a", "bulk.a", "other"]).await);
    assert_eq!(place.pending().await, before, "all or none");
    assert!(!place.is_refused(&["money.a"]).await, "never refused");
    assert!(!place.is_refused(&["other"]).await, "of no class");
    place.0.gauge.set_classes(&[]).await.unwrap();
    for _ in 0..2 * HARD {
        assert!(!place.is_refused(&["bulk.a"]).await, "configured away");
    }
}

async fn the_relays_word_frees_again(place: &Place) {
    place.deliver().await;
    let stop = place.keep();
    place.until_taken("bulk.a").await;
    while !place.is_refused(&["bulk.a"]).await {}
    // The relay counts the same, and as long as nothing is delivered nothing changes.
    let figures = async {
        while place.0.gauge.glance(HARD).await.unwrap().age.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, figures).await.unwrap();
    assert!(place.is_refused(&["bulk.a"]).await);
    place.deliver().await;
    place.until_taken("bulk.a").await;
    // What others write is not held against a class for longer than until the relay looks.
    for _ in 0..3 * HARD {
        assert!(!place.is_refused(&["money.a"]).await);
    }
    place.until_taken("bulk.a").await;
    stop.cancel();
}

async fn all(url: &str) {
    let place = Arc::new(Place::new(url).await);
    too_much_is_refused_whole(&place).await;
    the_relays_word_frees_again(&place).await;
}

#[tokio::test]
async fn postgres_producers_feel_the_pressure() {
    let Some(server) = servers::postgres().await else {
        return;
    };
    all(&server.database().await).await;
}

#[tokio::test]
async fn sqlite_producers_feel_the_pressure() {
    let folder = tempfile::tempdir().unwrap();
    all(&format!("sqlite:{}", folder.path().join("outbox.db").display())).await;
}

#[tokio::test]
async fn mongodb_producers_feel_the_pressure() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    all(&server.database()).await;
}
