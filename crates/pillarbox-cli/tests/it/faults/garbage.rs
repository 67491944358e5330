//! Rows from other writers: anything in any column that the database accepts. Each row is delivered, dead or
//! waits for its retry. The relay continues, and the events beside these rows are delivered.

mod document;
mod row;

use mongodb::{
    Client, Collection,
    bson::{Document, doc},
};
use pillarbox_testkit::{
    fuzz::{self, Fuzz},
    ledger::Ledger,
    servers::{self, Nats},
    torture::Campaign,
    wait,
};
use serde_json::Value;
use sqlx::{Executor, SqlitePool};

use super::harness::{Binary, Config, Producer, Relay, STREAM, Scene, event, read_stream};
use row::Row;

const ROWS_AT_ONCE: u64 = 200;
const PENDING: &str = "select count(*) from outbox_events where status = 'pending'";

/// Other fields are ignored: a payload can contain a number that no Rust type here can hold.
#[derive(serde::Deserialize)]
struct Shown {
    id: String,
}

/// Checks that people can list, show and replay the dead letters.
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
    // In SQLite a key may not be a text. Such letters can't be replayed.
    let done = replayed["done"].as_u64().unwrap();
    assert!(done > 0 && done <= open, "{done} of {open} were replayed");
}

fn listed_count(listed: &Value) -> u64 {
    let groups = listed["groups"].as_array().unwrap();
    groups.iter().map(|group| group["count"].as_u64().unwrap()).sum()
}

async fn assert_the_relay_is_well(relay: Relay, nats: &Nats, ledger: &Ledger) {
    for trouble in ["the database is away", "panicked"] {
        assert!(!relay.log().contains(trouble), "it says: {trouble}");
    }
    read_stream(&nats.url(), STREAM, ledger).await;
    // Garbage that was delivered is in the stream too, but not in the ledger.
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
    println!("{taken} rows were accepted by the database");
    fuzz::said(&campaign, tried);
    assert_the_relay_is_well(relay, &nats, &scene.ledger).await;
}

/// Rows of any content in SQLite, which accepts more than PostgreSQL.
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
    println!("{taken} rows were accepted by the database");
    fuzz::said(&campaign, tried);
    assert_the_relay_is_well(relay, &nats, &ledger).await;
}

/// Documents of any content in MongoDB, written past the validator.
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
    println!("{taken} documents were accepted by the database");
    fuzz::said(&campaign, tried);
    assert_the_relay_is_well(relay, &nats, &ledger).await;
}

/// Writes good events beside the garbage.
async fn place_neighbours(binary: &Binary, ledger: &Ledger, placed: &mut u64) {
    let mut lines = String::new();
    for n in *placed..*placed + 20 {
        let (key, nth) = (format!("neighbour-{}", n % 7), n / 7);
        let event = event(&key, nth);
        ledger.committed(event.id.clone(), &key, nth);
        lines.push_str(&(serde_json::to_string(&event).unwrap() + "\n"));
    }
    *placed += 20;
    let output = binary.feed(&["enqueue", "--ndjson"], &lines).await;
    assert!(output.status.success(), "{output:?}");
}

async fn no_document_is_pending(events: &Collection<Document>) {
    wait::until_ok(async || {
        let one = events.find_one(doc! { "status": "pending" }).await.unwrap();
        one.map_or(Ok(()), |one| {
            Err(format!("documents are still pending, such as {one:#?}"))
        })
    })
    .await;
}

async fn nothing_is_pending(pool: &SqlitePool) {
    wait::until_ok(async || {
        let waiting: i64 = sqlx::query_scalar(PENDING).fetch_one(pool).await.unwrap();
        match waiting {
            0 => Ok(()),
            _ => Err(format!("{waiting} rows are still pending")),
        }
    })
    .await;
}
