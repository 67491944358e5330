//! One file, an application and a relay.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use pillarbox::{Event, Outbox};
use pillarbox_relay::{Settlement, store::PageLimit};
use uuid::Uuid;

use super::harness::SqliteHarness;

const PAGE: PageLimit = PageLimit {
    events: 100,
    bytes: 1 << 20,
    payload_bytes_max: 1 << 20,
};

/// The application's part: connections of its own, orders and their events in one transaction, every seventh rolled back.
async fn place_orders(harness: &SqliteHarness, writer: usize, orders: usize) -> Vec<Uuid> {
    let mut committed = Vec::new();
    for n in 0..orders {
        let mut tx = harness.application.begin_with("begin immediate").await.unwrap();
        sqlx::query("insert into orders (writer, n) values (?, ?)")
            .bind(writer as i64)
            .bind(n as i64)
            .execute(&mut *tx)
            .await
            .unwrap();
        let event = Event::new("shop.order.placed", "OrderPlaced", "order", format!("w-{writer}"));
        Outbox::default().enqueue(&mut tx, &event).await.unwrap();
        if n % 7 == 6 {
            tx.rollback().await.unwrap();
        } else {
            tx.commit().await.unwrap();
            committed.push(event.id);
        }
    }
    committed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_writes_undisturbed_while_the_relay_reads_and_settles() {
    let harness = SqliteHarness::new().await;
    sqlx::query("create table orders (writer integer, n integer)")
        .execute(&harness.application)
        .await
        .unwrap();
    let store = harness.store.store.clone();
    let relay = Uuid::now_v7();
    let held = store
        .take_lanes(relay, 256, Duration::from_secs(120))
        .await
        .unwrap();
    let writers = async {
        // Any error the application sees, a busy database among them, ends the test.
        tokio::join!(
            place_orders(&harness, 0, 150),
            place_orders(&harness, 1, 150),
            place_orders(&harness, 2, 150)
        )
    };
    let (done, mut stop) = tokio::sync::oneshot::channel::<()>();
    let reading = tokio::spawn(async move {
        let mut reader = store.reader(&held);
        let mut read: BTreeMap<String, Vec<Uuid>> = BTreeMap::new();
        loop {
            let finished = !matches!(
                stop.try_recv(),
                Err(tokio::sync::oneshot::error::TryRecvError::Empty)
            );
            let page = reader.next(PAGE).await.unwrap();
            if page.events.is_empty() {
                if finished {
                    return read;
                }
                store.wait(Duration::from_millis(50)).await;
                continue;
            }
            let published = page.events.iter().map(|e| e.seq).collect();
            for event in page.events {
                read.entry(event.event.key().to_owned())
                    .or_default()
                    .push(event.event.id);
            }
            let settlement = Settlement {
                published,
                ..Settlement::default()
            };
            store.settle(&held, &settlement).await.unwrap();
        }
    });
    let (a, b, c) = writers.await;
    done.send(()).unwrap();
    let read = reading.await.unwrap();
    let expected = BTreeMap::from([
        ("w-0".to_owned(), a),
        ("w-1".to_owned(), b),
        ("w-2".to_owned(), c),
    ]);
    assert_eq!(
        read, expected,
        "nothing lost, nothing twice, nothing rolled back, in order"
    );
    assert_eq!(harness.store.admin.status().await.unwrap().pending, 0);
}

/// Waiting must cost next to nothing: well under 1 % of a core.
#[tokio::test]
async fn an_idle_wait_is_cheap() {
    let harness = SqliteHarness::new().await;
    let store = &harness.store.store;
    // Other tests of this process must not be charged to it: only this thread and SQLite's, by name, would be exact;
    // counting looks is enough, each being one short call.
    store.wait(Duration::from_millis(500)).await;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        store.wait(Duration::from_millis(200)).await;
    }
    let began = Instant::now();
    store.wait(Duration::from_millis(100)).await;
    assert!(
        began.elapsed() >= Duration::from_millis(95),
        "nothing was committed: it waits its time"
    );
}
