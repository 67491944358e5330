//! Rows that strangers wrote: anything in any column that the database takes. Each is delivered, dead or waiting for its
//! retry, the relay goes on, and what lies beside them is delivered.

mod document;
mod row;

use std::time::Duration;

use mongodb::{
    Client, Collection,
    bson::{Document, doc},
};
use pillarbox_testkit::{
    fuzz::{self, Fuzz},
    ledger::Ledger,
    servers::{self, Nats},
    torture::Campaign,
};
use serde_json::Value;
use sqlx::{Executor, SqlitePool};
use tokio::time::Instant;

use super::harness::{Binary, Config, PATIENCE, Producer, Relay, STREAM, Scene, event, read_stream};
use row::Row;

const ROWS_AT_ONCE: u64 = 200;
const PENDING: &str = "select count(*) from outbox_events where status = 'pending'";

/// The rest is passed over: a payload may have a number that no type of ours holds.
#[derive(serde::Deserialize)]
struct Shown {
    id: String,
}

/// People can look at what died of it, replay it and discard it.
async fn assert_dead_letters_can_be_handled(binary: &Binary) {
    let json = async |arguments: &[&str]| -> Value {
        let output = binary.done(&[&["--json"], arguments].concat()).await;
        serde_json::from_str(&output).unwrap()
    };
    let listed = json(&["dead", "list", "--letters"]).await;
    let letters = listed["letters"].as_array().unwrap();
    assert!(!letters.is_empty(), "nothing died of garbage");
    for letter in letters.iter().take(20) {
        let id = letter["id"].as_str().unwrap();
        let output = binary.done(&["--json", "dead", "show", id]).await;
        assert_eq!(serde_json::from_str::<Shown>(&output).unwrap().id, id);
    }
    binary.done(&["dead", "list"]).await;
    binary.done(&["status"]).await;
    let open = listed_count(&json(&["dead", "list"]).await);
    let replayed = json(&["dead", "replay", "--all", "--why", "again"]).await;
    // In SQLite a key may be no text at all; its letters stay where they are.
    let done = replayed["done"].as_u64().unwrap();
    assert!(done > 0 && done <= open, "{done} of {open} were replayed");
}

fn listed_count(listed: &Value) -> u64 {
    let groups = listed["groups"].as_array().unwrap();
    groups.iter().map(|group| group["count"].as_u64().unwrap()).sum()
}

async fn assert_the_relay_is_well(relay: Relay, nats: &Nats, ledger: &Ledger) {
    for trouble in ["the store does not work", "panicked"] {
        assert!(!relay.log().contains(trouble), "it says: {trouble}");
    }
    read_stream(&nats.url(), STREAM, ledger).await;
    // Garbage that was delivered is in the stream as well, and not in the ledger.
    let verdict = ledger.verdict();
    assert!(
        verdict.lost == 0 && verdict.order_violations == 0 && verdict.duplicated == 0,
        "{verdict}"
    );
    assert!(verdict.committed > 0);
    relay.stop().await;
}

/// Rows of any content in PostgreSQL.
#[tokio::test(flavor = "multi_thread")]
async fn torture_fuzz_stored_rows_postgres() {
    let campaign = Campaign::begin("fuzz_stored_rows_postgres");
    let Some((scene, nats)) = Scene::start(|_| {}).await else {
        return;
    };
    let weaken = "alter domain outbox_events_json drop constraint is_json";
    scene.pool.execute(weaken).await.unwrap();
    let producer = Producer::new(&scene);
    let relay = scene.relay("relay").await;
    let (mut tried, mut taken) = (0, 0);
    while campaign.goes_on(tried, 3 * ROWS_AT_ONCE) {
        for nth in tried..tried + ROWS_AT_ONCE {
            taken += u64::from(
                Row::new(&mut Fuzz::new(&campaign, nth), nth)
                    .into_postgres(&scene.pool)
                    .await,
            );
            if nth % 10 == 0 {
                producer.place(&format!("neighbour-{}", nth % 70), 1).await;
            }
        }
        tried += ROWS_AT_ONCE;
        scene.until(PENDING, |waiting| waiting == 0).await;
    }
    assert_dead_letters_can_be_handled(&scene).await;
    scene.until(PENDING, |waiting| waiting == 0).await;
    println!("{taken} rows were taken by the database");
    fuzz::said(&campaign, tried);
    assert_the_relay_is_well(relay, &nats, &scene.ledger).await;
}

/// Rows of any content in SQLite, which lets more pass than PostgreSQL.
#[tokio::test(flavor = "multi_thread")]
async fn torture_fuzz_stored_rows_sqlite() {
    let campaign = Campaign::begin("fuzz_stored_rows_sqlite");
    let Some(nats) = Nats::start().await else {
        return;
    };
    let binary = Binary::new(Config::new("sqlite:outbox.db", &nats.url()));
    binary.done(&["migrate"]).await;
    binary.done(&["streams", "apply"]).await;
    let file = format!("sqlite:{}", binary.folder().join("outbox.db").display());
    let pool = SqlitePool::connect(&file).await.unwrap();
    let ledger = Ledger::new();
    let relay = binary.relay("relay").await;
    let (mut tried, mut taken, mut placed) = (0, 0, 0);
    while campaign.goes_on(tried, 3 * ROWS_AT_ONCE) {
        for nth in tried..tried + ROWS_AT_ONCE {
            taken += u64::from(
                Row::new(&mut Fuzz::new(&campaign, nth), nth)
                    .into_sqlite(&pool)
                    .await,
            );
            if nth == tried + ROWS_AT_ONCE / 2 {
                place_neighbours(&binary, &ledger, &mut placed).await;
            }
        }
        tried += ROWS_AT_ONCE;
        nothing_is_pending(&pool).await;
    }
    assert_dead_letters_can_be_handled(&binary).await;
    nothing_is_pending(&pool).await;
    println!("{taken} rows were taken by the database");
    fuzz::said(&campaign, tried);
    assert_the_relay_is_well(relay, &nats, &ledger).await;
}

/// Documents of any content in MongoDB, past the validator.
#[tokio::test(flavor = "multi_thread")]
async fn torture_fuzz_stored_documents_mongodb() {
    let campaign = Campaign::begin("fuzz_stored_documents_mongodb");
    let (Some(mongo), Some(nats)) = (servers::mongo().await, Nats::start().await) else {
        return;
    };
    let url = mongo.database();
    let binary = Binary::new(Config::new(&url, &nats.url()));
    binary.done(&["migrate"]).await;
    binary.done(&["streams", "apply"]).await;
    let client = Client::with_uri_str(&url).await.unwrap();
    let events: Collection<Document> = client.default_database().unwrap().collection("outbox_events");
    let ledger = Ledger::new();
    let relay = binary.relay("relay").await;
    let (mut tried, mut taken, mut placed) = (0, 0, 0);
    while campaign.goes_on(tried, 3 * ROWS_AT_ONCE) {
        for nth in tried..tried + ROWS_AT_ONCE {
            let document = document::document(&mut Fuzz::new(&campaign, nth), nth);
            let insert = events.insert_one(document).bypass_document_validation(true);
            taken += u64::from(insert.await.is_ok());
            if nth == tried + ROWS_AT_ONCE / 2 {
                place_neighbours(&binary, &ledger, &mut placed).await;
            }
        }
        tried += ROWS_AT_ONCE;
        no_document_is_pending(&events).await;
    }
    assert_dead_letters_can_be_handled(&binary).await;
    no_document_is_pending(&events).await;
    println!("{taken} documents were taken by the database");
    fuzz::said(&campaign, tried);
    assert_the_relay_is_well(relay, &nats, &ledger).await;
}

/// Good events beside the garbage.
async fn place_neighbours(binary: &Binary, ledger: &Ledger, placed: &mut u64) {
    let mut lines = String::new();
    for n in *placed..*placed + 20 {
        let (key, nth) = (format!("neighbour-{}", n % 7), n / 7);
        let event = event(&key, nth);
        ledger.committed(event.id, &key, nth);
        lines.push_str(&(serde_json::to_string(&event).unwrap() + "\n"));
    }
    *placed += 20;
    let output = binary.feed(&["enqueue", "--ndjson"], &lines).await;
    assert!(output.status.success(), "{output:?}");
}

async fn no_document_is_pending(events: &Collection<Document>) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let waiting = doc! { "status": "pending" };
        if events.count_documents(waiting.clone()).await.unwrap() == 0 {
            return;
        }
        if Instant::now() >= deadline {
            let one = events.find_one(waiting).await.unwrap();
            panic!("documents are left where they are, such as {one:#?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn nothing_is_pending(pool: &SqlitePool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let waiting: i64 = sqlx::query_scalar(PENDING).fetch_one(pool).await.unwrap();
        if waiting == 0 {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{waiting} rows are left where they are"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
