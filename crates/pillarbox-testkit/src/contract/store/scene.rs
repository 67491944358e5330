//! The start of most checks: an outbox, a relay that holds every lane, and helpers to write, read and settle.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pillarbox::{Event, EventId, Limits, lane::LANES};
use pillarbox_relay::{
    Settlement, Store, StoredEvent,
    event::Unreadable,
    route::AfterDeath,
    settlement::{Dead, DeadReason, Delayed, Failed, FailedTry, Parked},
    store::{Due, HeldLane, PageLimit, Reader, RelayId, Settled},
};

pub use crate::wait::until as eventually;

use super::{Row, StoreHarness};

/// Longer than any check takes.
pub const LONG: Duration = Duration::from_secs(120);
/// The timeout for everything that must happen; generous, because machines differ.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// A lease or a delay that is short enough to wait for.
pub const SHORT: Duration = Duration::from_millis(300);

pub struct Scene {
    pub harness: Arc<dyn StoreHarness>,
    pub store: Arc<dyn Store>,
    pub relay: RelayId,
    /// All lanes.
    pub held: Vec<HeldLane>,
}

/// Everything that a reader returned.
#[derive(Default)]
pub struct Drained {
    pub events: Vec<StoredEvent>,
    pub unreadable: Vec<Unreadable>,
    pub decided: i64,
    pub pages: usize,
}

impl Scene {
    pub async fn new(harness: Arc<dyn StoreHarness>) -> Self {
        let store = harness.store();
        let relay = RelayId::now_v7();
        store.heartbeat(relay, "scene", LONG, &[]).await.unwrap();
        let held = store.take_lanes(relay, usize::from(LANES), LONG).await.unwrap();
        assert_eq!(
            held.len(),
            usize::from(LANES),
            "a fresh outbox has every lane to take"
        );
        Self {
            harness,
            store,
            relay,
            held,
        }
    }

    /// Commits the events in one transaction.
    pub async fn commit(&self, events: &[Event]) {
        let mut tx = self.harness.begin().await;
        tx.enqueue(&Limits::default(), events).await.unwrap();
        tx.commit().await;
    }

    /// Commits `count` events of one key.
    pub async fn commit_key(&self, key: &str, count: usize) -> Vec<Event> {
        let events: Vec<Event> = (0..count).map(|_| event(key)).collect();
        self.commit(&events).await;
        events
    }

    /// Commits `count` events of one key, and reads them.
    pub async fn stored(&self, key: &str, count: usize) -> Vec<StoredEvent> {
        let mut reader = self.reader();
        drain(&mut reader, page(100)).await;
        let events = self.commit_key(key, count).await;
        let read = drain(&mut reader, page(100)).await.events;
        assert_eq!(ids(&read), written(&events));
        read
    }

    pub fn reader(&self) -> Box<dyn Reader> {
        self.store.reader(&self.held)
    }

    pub async fn settle(&self, settlement: Settlement) -> Settled {
        self.store.settle(&self.held, &settlement).await.unwrap()
    }

    pub async fn publish(&self, events: &[StoredEvent]) {
        let published = events.iter().map(|e| e.seq).collect();
        self.settle(Settlement {
            published,
            ..Settlement::default()
        })
        .await;
    }

    /// The first one fails with this delay; the others are held behind it.
    pub async fn park(&self, events: &[StoredEvent], retry_in: Duration) {
        self.settle(Settlement {
            failed: vec![failed(&events[0], 1, retry_in)],
            held: events[1..].iter().map(parked).collect(),
            ..Settlement::default()
        })
        .await;
    }

    pub async fn due(&self) -> Due {
        self.store.due(&self.held, None, page(100)).await.unwrap()
    }

    pub async fn row(&self, event: &StoredEvent) -> Row {
        self.harness
            .row(event.event.id.clone())
            .await
            .expect("the event's row is there")
    }

    /// Waits until exactly these are due, in this order.
    pub async fn until_due(&self, expected: &[StoredEvent]) {
        let expected: Vec<_> = expected.iter().map(|e| e.event.id.clone()).collect();
        eventually("they are due", || async {
            let due = self.due().await;
            due.events
                .iter()
                .map(|e| e.event.event.id.clone())
                .collect::<Vec<_>>()
                == expected
        })
        .await;
    }
}

/// An event whose key is `key`.
/// Every second one has an id that is not a UUID.
pub fn event(key: &str) -> Event {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let event = Event::to("contract.tested")
        .event_type("Tested")
        .aggregate("thing", key)
        .payload(r#"{"n":1}"#);
    match MADE.fetch_add(1, Ordering::Relaxed) % 2 {
        0 => event,
        _ => {
            let id = format!("№ {}", event.id);
            event.id(id)
        }
    }
}

/// Up to `events`; the other limits do not apply.
pub fn page(events: usize) -> PageLimit {
    PageLimit {
        events,
        bytes: 64 * 1024 * 1024,
        payload_bytes_max: 1024 * 1024,
    }
}

/// Reads until nothing is new.
pub async fn drain(reader: &mut Box<dyn Reader>, limit: PageLimit) -> Drained {
    let mut all = Drained::default();
    loop {
        let page = reader.next(limit).await.unwrap();
        assert!(page.events.len() <= limit.events, "a page keeps its limit");
        assert!(page.decided >= all.decided, "decided never goes back");
        all.decided = page.decided;
        let empty = page.events.is_empty() && page.unreadable.is_empty();
        all.events.extend(page.events);
        all.unreadable.extend(page.unreadable);
        if empty && !page.more {
            return all;
        }
        all.pages += 1;
        assert!(all.pages < 10_000, "a reader comes to an end");
    }
}

pub fn ids(events: &[StoredEvent]) -> Vec<EventId> {
    events.iter().map(|e| e.event.id.clone()).collect()
}

pub fn written(events: &[Event]) -> Vec<EventId> {
    events.iter().map(|e| e.id.clone()).collect()
}

pub fn seqs(events: &[StoredEvent]) -> Vec<i64> {
    events.iter().map(|e| e.seq).collect()
}

pub fn parked(event: &StoredEvent) -> Parked {
    Parked {
        seq: event.seq,
        lane: event.lane,
        key: event.event.key().to_owned(),
    }
}

pub fn failed(event: &StoredEvent, attempts: u32, retry_in: Duration) -> Failed {
    Failed {
        parked: parked(event),
        attempts,
        charged: true,
        failure: failure("the broker said “no”: {\"code\": 500}"),
        retry_in,
    }
}

pub fn delayed(event: &StoredEvent, by: Duration) -> Delayed {
    Delayed {
        parked: parked(event),
        available_at: jiff::Timestamp::now() + jiff::SignedDuration::try_from(by).unwrap(),
    }
}

pub fn dead(event: &StoredEvent, attempts: u32) -> Dead {
    Dead {
        seq: event.seq,
        subject: None,
        lane: event.lane,
        key: Some(event.event.key().to_owned()),
        after: AfterDeath::Skip,
        attempts,
        reason: DeadReason::MaxRetriesExceeded,
        failure: failure("gave up"),
        tried: true,
        logged: false,
    }
}

pub fn failure(error: &str) -> FailedTry {
    FailedTry {
        error: error.into(),
        sink: Some("events".into()),
        relay: "scene".into(),
    }
}
