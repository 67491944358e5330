//! The basis of the order of events, and that no event is missed, however late it is committed.

use std::{sync::Arc, time::Duration};

use futures::TryStreamExt;
use mongodb::bson::{Document, Timestamp, doc};
use pillarbox::{Event, Outbox};
use pillarbox_relay::Settlement;
use pillarbox_testkit::{
    contract::store::scene::{Scene, drain, event, ids, page, seqs, written},
    ledger::Ledger,
    servers, wait,
};

use super::{
    harness::MongoHarness,
    shop::{Habits, produce},
};

async fn seqs_of(harness: &MongoHarness, key: &str) -> Vec<Timestamp> {
    let found: Vec<Document> = harness
        .events()
        .find(doc! { "entity_id": key })
        .sort(doc! { "entity_version": 1 })
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    found
        .iter()
        .map(|event| event.get_timestamp("seq").unwrap())
        .collect()
}

#[tokio::test]
async fn the_server_gives_seqs_in_the_order_of_writing() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let (mut one, mut two) = (harness.session().await, harness.session().await);
    let outbox = Outbox::default();
    // Alternately in two open transactions, several events at once.
    for n in 0..20 {
        let session = if n % 2 == 0 { &mut one } else { &mut two };
        let events: Vec<Event> = (0..5).map(|k| event("a").aggregate_version(n * 5 + k)).collect();
        outbox.enqueue_all(session, &events).await.unwrap();
    }
    two.commit_transaction().await.unwrap();
    one.commit_transaction().await.unwrap();
    let seqs = seqs_of(&harness, "a").await;
    assert_eq!(seqs.len(), 100);
    assert!(seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
    assert!(seqs[0].time > 1_600_000_000, "{:?}", seqs[0]);
}

#[tokio::test]
async fn of_transactions_that_follow_each_other_the_later_has_the_higher_seqs() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let entities = harness.database().collection::<Document>("entities");
    entities.insert_one(doc! { "_id": "a", "n": 0 }).await.unwrap();
    let outbox = Outbox::default();
    let change = doc! { "$inc": { "n": 1 } };
    let mut earlier = harness.session().await;
    let mut later = harness.session().await;
    entities
        .update_one(doc! { "_id": "a" }, change.clone())
        .session(&mut earlier)
        .await
        .unwrap();
    // The later transaction can't change the entity while the earlier one is open. Afterwards it can't
    // either, because its snapshot is older.
    let refused = entities
        .update_one(doc! { "_id": "a" }, change.clone())
        .session(&mut later)
        .await;
    assert!(refused.unwrap_err().contains_label("TransientTransactionError"));
    outbox
        .enqueue(&mut earlier, &event("a").aggregate_version(1))
        .await
        .unwrap();
    earlier.commit_transaction().await.unwrap();
    let _ = later.abort_transaction().await;
    later.start_transaction().await.unwrap();
    entities
        .update_one(doc! { "_id": "a" }, change)
        .session(&mut later)
        .await
        .unwrap();
    outbox
        .enqueue(&mut later, &event("a").aggregate_version(2))
        .await
        .unwrap();
    later.commit_transaction().await.unwrap();
    let seqs = seqs_of(&harness, "a").await;
    assert!(seqs[0] < seqs[1], "{seqs:?}");
}

/// Late commits come before newer events, even if they need more than a page.
#[tokio::test]
async fn a_late_commit_comes_before_newer_events() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let scene = Scene::new(Arc::new(MongoHarness::new(server).await)).await;
    let mut reader = scene.reader();
    let late: Vec<Event> = (0..5).map(|_| event("late")).collect();
    let mut open = scene.harness.begin().await;
    open.enqueue(&pillarbox::Limits::default(), &late).await.unwrap();
    let early = scene.commit_key("early", 3).await;
    let read = drain(&mut reader, page(10)).await.events;
    assert_eq!(ids(&read), written(&early));
    scene.publish(&read[..1]).await;
    open.commit().await;
    let newer = scene.commit_key("late", 3).await;
    let first = reader.next(page(2)).await.unwrap();
    assert_eq!(ids(&first.events), written(&late[..2]));
    assert!(first.more);
    let mut rest = first.events;
    rest.extend(drain(&mut reader, page(2)).await.events);
    let expected: Vec<_> = late.iter().chain(&newer).map(|event| event.id.clone()).collect();
    assert_eq!(ids(&rest), expected);
    assert!(drain(&mut reader, page(2)).await.events.is_empty());
}

/// Many sessions beside a reader that settles as it reads. Some transactions stay open for seconds, some are
/// aborted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_late_commits_and_rollbacks_nothing_is_missed_or_read_twice_and_keys_keep_their_order() {
    const WRITERS: u64 = 24;
    const TRANSACTIONS: usize = 40;
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = Arc::new(MongoHarness::new(server).await);
    let scene = Scene::new(harness.clone()).await;
    let ledger = Arc::new(Ledger::new());
    let habits = Habits {
        keys: 40,
        given_up: 15,
        held_open: 20,
        held_open_max: Duration::from_secs(3),
    };
    let writers: Vec<_> = (0..WRITERS)
        .map(|seed| {
            let (client, ledger) = (harness.application.clone(), ledger.clone());
            tokio::spawn(produce(
                client,
                ledger,
                habits,
                TRANSACTIONS,
                Arc::default(),
                seed,
            ))
        })
        .collect();
    let mut reader = scene.reader();
    let (mut highest, mut decided, mut late) = (0, 0, 0);
    let mut unsettled = Vec::new();
    let mut reading = true;
    while reading {
        // Ask before reading: an empty page read after all writers have ended shows that nothing is left.
        let over = writers.iter().all(|writer| writer.is_finished());
        let page = reader.next(page(50)).await.unwrap();
        assert!(page.unreadable.is_empty());
        for event in &page.events {
            assert!(
                event.seq > decided,
                "an event arrived below {decided}, which was decided"
            );
            late += u32::from(event.seq < highest);
            highest = highest.max(event.seq);
            ledger.seen(event.event.id.clone());
        }
        decided = page.decided;
        unsettled.extend(seqs(&page.events));
        // Some events stay in flight: discovery must not take them for late ones.
        if unsettled.len() > 60 {
            let published = unsettled.drain(..unsettled.len() - 20).collect();
            let settlement = Settlement {
                published,
                ..Settlement::default()
            };
            scene.store.settle(&scene.held, &settlement).await.unwrap();
        }
        reading = !over || page.more || !page.events.is_empty();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let verdict = ledger.verdict();
    println!("{verdict}; {late} came late");
    assert_eq!(verdict.duplicated, 0, "{verdict}");
    ledger.assert_whole();
    assert!(late > 20, "only {late} events were late: the test proves nothing");
}

/// The plan of the search for late commits: it reads only the index, and only unsettled events.
#[tokio::test]
async fn a_look_reads_only_unsettled_events() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = Arc::new(MongoHarness::new(server).await);
    let scene = Scene::new(harness.clone()).await;
    let mut reader = scene.reader();
    let mut open = scene.harness.begin().await;
    open.enqueue(&pillarbox::Limits::default(), &[event("open")])
        .await
        .unwrap();
    for n in 0..10 {
        scene.commit_key(&format!("key-{n}"), 50).await;
    }
    let read = drain(&mut reader, page(100)).await.events;
    scene.publish(&read[..490]).await;
    let collection = harness.events();
    let explain = |filter: Document, projection: Document| {
        let find = doc! {
            "find": collection.name(), "filter": filter, "projection": projection, "sort": { "seq": 1 }, "hint": "pending",
        };
        let database = harness.database();
        async move {
            let explain = doc! { "explain": find, "verbosity": "executionStats" };
            database.run_command(explain).await.unwrap()
        }
    };
    let lanes: Vec<i32> = (0..256).collect();
    let pending = doc! { "status": "pending", "seq": { "$gt": Timestamp { time: 1, increment: 0 } }, "lane": { "$in": lanes } };
    let look = explain(pending.clone(), doc! { "_id": 0, "seq": 1 }).await;
    let stats = look.get_document("executionStats").unwrap();
    assert_eq!(stats.get_i32("nReturned").unwrap(), 10);
    assert_eq!(
        stats.get_i32("totalDocsExamined").unwrap(),
        0,
        "the query must read the index only"
    );
    assert!(stats.get_i32("totalKeysExamined").unwrap() <= 21, "{stats}");
    let page = explain(pending, doc! {}).await;
    let stats = page.get_document("executionStats").unwrap();
    assert_eq!(stats.get_i32("totalDocsExamined").unwrap(), 10);
    assert!(
        !format!("{page}").contains("\"SORT\""),
        "the index must provide the order"
    );
    open.rollback().await;
}

/// On a private server: transactions of other tests would hold the mark back.
#[tokio::test]
async fn decided_waits_only_for_open_transactions() {
    let Some(server) = servers::Mongo::start().await else {
        return;
    };
    let scene = Scene::new(Arc::new(MongoHarness::new(&server).await)).await;
    let mut reader = scene.reader();
    let mut open = scene.harness.begin().await;
    open.enqueue(&pillarbox::Limits::default(), &[event("open")])
        .await
        .unwrap();
    for n in 0..3 {
        scene.commit_key(&format!("key-{n}"), 1).await;
        // The store asks the server once a second.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let read = drain(&mut reader, page(10)).await;
        assert_eq!(read.events.len(), 1);
        assert!(
            read.decided < read.events[0].seq,
            "an open transaction can still commit before it"
        );
    }
    open.commit().await;
    let late = drain(&mut reader, page(10)).await.events;
    assert_eq!(late.len(), 1);
    wait::until("the store knows that no transaction is open", async || {
        reader.next(page(10)).await.unwrap().decided >= late[0].seq
    })
    .await;
}
