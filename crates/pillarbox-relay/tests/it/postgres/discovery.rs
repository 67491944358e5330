//! Every committed event is read, and read once, however transactions end.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use pillarbox::{EventId, Outbox};
use pillarbox_relay::{
    Settlement, Store,
    store::{PageLimit, StoreErrorKind},
};
use pillarbox_testkit::{servers, wait};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{Place, drain, event, ids, page, place, written};

#[tokio::test]
async fn a_savepoint_rolled_back_takes_only_its_own_events() {
    let Some(place) = place().await else { return };
    let mut reader = place.reader();
    drain(&mut reader, page(10)).await;
    let outbox = Outbox::default();
    let (kept, gone, after) = (event("a"), event("a"), event("a"));
    let mut tx = place.pool.begin().await.unwrap();
    outbox.enqueue(&mut tx, &kept).await.unwrap();
    let mut savepoint = sqlx::Acquire::begin(&mut *tx).await.unwrap();
    outbox.enqueue(&mut savepoint, &gone).await.unwrap();
    savepoint.rollback().await.unwrap();
    let mut savepoint = sqlx::Acquire::begin(&mut *tx).await.unwrap();
    outbox.enqueue(&mut savepoint, &after).await.unwrap();
    savepoint.commit().await.unwrap();
    assert!(drain(&mut reader, page(10)).await.is_empty());
    tx.commit().await.unwrap();
    assert_eq!(ids(&drain(&mut reader, page(10)).await), written(&[kept, after]));
}

#[tokio::test]
async fn a_prepared_transaction_is_read_when_it_commits() {
    let Some(place) = place().await else { return };
    let mut reader = place.reader();
    drain(&mut reader, page(10)).await;
    let name = uuid::Uuid::now_v7();
    let prepared = event("prepared");
    let mut connection = place.pool.acquire().await.unwrap();
    let mut tx = sqlx::Acquire::begin(&mut *connection).await.unwrap();
    Outbox::default().enqueue(&mut tx, &prepared).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("prepare transaction '{name}'")))
        .execute(&mut *tx)
        .await
        .unwrap();
    drop(tx);
    for n in 0..3 {
        let others = place.commit(&["other", "prepared"]).await;
        assert_eq!(
            ids(&drain(&mut reader, page(1)).await),
            written(&others),
            "round {n}"
        );
    }
    place.run(&format!("commit prepared '{name}'")).await;
    assert_eq!(ids(&drain(&mut reader, page(10)).await), [prepared.id]);
}

#[tokio::test]
async fn a_plain_insert_is_delivered() {
    let Some(place) = place().await else { return };
    place
        .run(
            r#"insert into outbox_events (topic, event_type, aggregate_type, aggregate_id, payload, headers)
               values ('t.a', 'A', 'order', 'o-1', '{"b":  1}', '{"n": 5, "yes": true, "text": "x"}')"#,
        )
        .await;
    let read = drain(&mut place.reader(), page(10)).await;
    assert_eq!(read.len(), 1);
    let event = &read[0].event;
    assert_eq!(&event.payload[..], br#"{"b":  1}"#);
    let headers: Vec<_> = event
        .headers
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    assert_eq!(headers, [("n", "5"), ("text", "x"), ("yes", "true")]);
    assert_eq!((event.schema_version, event.key()), (1, "o-1"));
}

#[tokio::test]
async fn a_row_that_breaks_the_rules_is_unreadable_and_stops_nothing() {
    let Some(place) = place().await else { return };
    for (topic, headers) in [("", "{}"), ("t", "[1]"), ("t", r#"{"a": {}}"#), ("t", "{}")] {
        place
            .run(&format!(
                "insert into outbox_events (topic, event_type, aggregate_type, aggregate_id, payload, headers)
                 values ('{topic}', 'A', 'order', 'o-1', '1', '{headers}')"
            ))
            .await;
    }
    let read = place.reader().next(page(10)).await.unwrap();
    assert_eq!(read.events.len(), 1);
    let problems: Vec<_> = read.unreadable.iter().map(|u| u.problem.as_str()).collect();
    assert_eq!(
        problems,
        [
            "topic is empty",
            "headers are not an object",
            "header `a` is not a text"
        ]
    );
}

/// The burst is larger than one read by txid, and an older transaction stays open throughout.
#[tokio::test]
async fn a_burst_beside_an_old_transaction_is_read_whole_and_in_order() {
    let Some(place) = place().await else { return };
    let old = event("old");
    let mut open = place.pool.begin().await.unwrap();
    Outbox::default().enqueue(&mut open, &old).await.unwrap();
    let mut reader = place.reader();
    drain(&mut reader, page(100)).await;
    for burst in 0..2 {
        let keys: Vec<String> = (0..5_000).map(|n| format!("k-{}", n % 7)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let events = place.commit(&keys).await;
        assert_eq!(
            ids(&drain(&mut reader, page(300)).await),
            written(&events),
            "burst {burst}"
        );
    }
    let mut late = place.pool.begin().await.unwrap();
    let many: Vec<_> = (0..2_500).map(|_| event("late")).collect();
    Outbox::default().enqueue_all(&mut late, &many).await.unwrap();
    place.commit(&["between"]).await;
    assert_eq!(drain(&mut reader, page(300)).await.len(), 1);
    late.commit().await.unwrap();
    open.commit().await.unwrap();
    let read = ids(&drain(&mut reader, page(300)).await);
    assert_eq!(read[0], old.id);
    assert_eq!(read[1..], written(&many));
    assert!(drain(&mut reader, page(300)).await.is_empty());
}

#[tokio::test]
async fn a_reader_does_not_outlive_a_restart_of_the_server() {
    let Some(mut server) = servers::Postgres::start(servers::PostgresOptions::default()).await else {
        return;
    };
    let place = Place::new(server.database().await).await;
    let mut reader = place.reader();
    let events = place.commit(&["a", "b"]).await;
    assert_eq!(drain(&mut reader, page(10)).await.len(), 2);
    server.restart().await;
    // At first the connections are broken, then the cursor is invalid. It must never return a page.
    wait::until_ok(async || {
        match reader.next(page(10)).await {
            Ok(_) => panic!("a cursor from before the restart was used"),
            Err(error) => assert_eq!(error.kind, StoreErrorKind::Away, "{}", error.chain()),
        }
        place.store.check().await.map_err(|error| error.chain())
    })
    .await;
    let mut again = place.reader();
    assert_eq!(ids(&drain(&mut again, page(10)).await), written(&events));
}

/// Transactions that end late or never, in any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_missed_or_read_twice_among_late_commits_and_rollbacks() {
    const WRITERS: u64 = 16;
    const SECONDS: u64 = 4;
    let Some(place) = place().await else { return };
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| tokio::spawn(write_until(end, place.pool.clone(), n, seed + n)))
        .collect();
    let mut reader = place.reader();
    let mut seen: HashMap<EventId, i64> = HashMap::new();
    let mut decided = 0;
    loop {
        let over = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let page = reader.next(page(200)).await.unwrap();
        for event in &page.events {
            assert!(
                event.seq > decided,
                "{} was decided, but {} arrived",
                decided,
                event.seq
            );
            assert!(
                seen.insert(event.event.id.clone(), event.seq).is_none(),
                "read twice"
            );
        }
        assert!(page.decided >= decided);
        decided = page.decided;
        let published = page.events.iter().map(|e| e.seq).collect();
        let settlement = Settlement {
            published,
            ..Settlement::default()
        };
        place.store.settle(&place.held, &settlement).await.unwrap();
        if over && !page.more {
            break;
        }
    }
    let mut committed = HashSet::new();
    for writer in writers {
        committed.extend(writer.await.unwrap());
    }
    println!("{} events, decided up to {decided}", committed.len());
    assert!(committed.len() > 200);
    assert_eq!(seen.keys().cloned().collect::<HashSet<_>>(), committed);
    let last = seen.values().copied().max().unwrap();
    assert!(decided > last / 2, "decided did not advance: {decided} of {last}");
    wait::until("decided reaches the last event", async || {
        reader.next(page(200)).await.unwrap().decided >= last
    })
    .await;
}

async fn write_until(end: Instant, pool: sqlx::PgPool, n: u64, seed: u64) -> Vec<EventId> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut committed = Vec::new();
    while Instant::now() < end {
        let mut tx = pool.begin().await.unwrap();
        if random.random_bool(0.3) {
            // Take an xid long before the first seq.
            sqlx::query("select pg_current_xact_id()::text")
                .execute(&mut *tx)
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_millis(random.random_range(0..20))).await;
        }
        let mut events = Vec::new();
        for _ in 0..random.random_range(1..4) {
            let one = event(&format!("w-{n}"));
            Outbox::default().enqueue(&mut tx, &one).await.unwrap();
            events.push(one.id);
            if random.random_bool(0.2) {
                tokio::time::sleep(Duration::from_millis(random.random_range(0..400))).await;
            }
        }
        if random.random_bool(0.2) {
            tx.rollback().await.unwrap();
        } else {
            tx.commit().await.unwrap();
            committed.extend(events);
        }
    }
    committed
}

/// Small payloads are read without adding up their sizes. A large one among them ends the page and starts the
/// next.
#[tokio::test]
async fn large_payloads_among_small_ones_are_read_in_order_and_within_the_bytes() {
    let Some(place) = place().await else { return };
    let sized = |n: usize| {
        let bytes = if n % 7 == 3 || (20..24).contains(&n) {
            9_000
        } else {
            50
        };
        event("a").payload(format!("\"{:x<bytes$}\"", ""))
    };
    let events: Vec<_> = (0..60).map(sized).collect();
    let mut tx = place.pool.begin().await.unwrap();
    Outbox::default().enqueue_all(&mut tx, &events).await.unwrap();
    tx.commit().await.unwrap();
    for (count, bytes) in [(10, 20_000), (60, 8_000), (1, 100), (25, 1_000_000)] {
        let limit = PageLimit { bytes, ..page(count) };
        let mut reader = place.reader();
        let mut read = Vec::new();
        loop {
            let found = reader.next(limit).await.unwrap();
            let size: usize = found.events.iter().map(|e| e.event.payload.len()).sum();
            assert!(
                found.events.len() <= count && (size <= bytes || found.events.len() == 1),
                "{count} {bytes}"
            );
            read.extend(found.events);
            if !found.more {
                break;
            }
        }
        assert_eq!(
            ids(&read),
            written(&events),
            "pages of {count} events and {bytes} bytes"
        );
    }
}
