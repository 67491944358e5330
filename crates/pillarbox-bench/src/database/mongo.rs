//! The same for MongoDB.

use std::time::Duration;

use anyhow::{Context as _, Result};
use mongodb::{
    Client, ClientSession, IndexModel,
    bson::{DateTime, Document, doc},
    options::{ReadConcern, ReturnDocument},
};
use pillarbox::table::Tables;

/// How long the lock of the hand-written loop is valid.
const LOCK: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct Mongo(Client);

/// An idle transaction that keeps its snapshot until it is dropped.
pub(crate) type Snapshot = ClientSession;

impl Mongo {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        Ok(Self(Client::with_uri_str(url).await?))
    }

    fn database(&self, tables: &Tables) -> mongodb::Database {
        self.0
            .database(tables.name().split('.').next().unwrap_or_default())
    }

    fn naive(&self, tables: &Tables) -> mongodb::Collection<Document> {
        self.database(tables).collection("naive")
    }

    pub(super) async fn hold_snapshot(&self) -> Result<Snapshot> {
        let mut session = self.0.start_session().await?;
        session
            .start_transaction()
            .read_concern(ReadConcern::snapshot())
            .await?;
        let anything = self.0.database("admin").collection::<Document>("system.version");
        anything.find_one(doc! {}).session(&mut session).await?;
        Ok(session)
    }

    pub(super) async fn clear_room(&self, tables: &Tables) -> Result<()> {
        Ok(self.database(tables).drop().await?)
    }

    pub(super) async fn bytes(&self, tables: &Tables) -> Result<i64> {
        let stats = self.database(tables).run_command(doc! {"dbStats": 1}).await?;
        let of = |name| match stats.get(name) {
            Some(mongodb::bson::Bson::Double(bytes)) => *bytes as i64,
            Some(mongodb::bson::Bson::Int64(bytes)) => *bytes,
            Some(mongodb::bson::Bson::Int32(bytes)) => i64::from(*bytes),
            _ => 0,
        };
        Ok(of("storageSize") + of("indexSize"))
    }

    /// Fills a collection as a hand-written worker would have it, with the index that it uses.
    pub(super) async fn fill_naive(&self, tables: &Tables, payloads: &[String]) -> Result<()> {
        let naive = self.naive(tables);
        let by_age = IndexModel::builder()
            .keys(doc! {"status": 1, "created_at": 1})
            .build();
        naive.create_index(by_age).await?;
        for chunk in payloads.chunks(1_000) {
            let rows = chunk.iter().map(|payload| {
                doc! {
                    "_id": uuid::Uuid::now_v7().to_string(), "payload": payload.as_str(), "status": "pending",
                    "created_at": DateTime::now(), "retry_count": 0,
                }
            });
            naive.insert_many(rows).await?;
        }
        Ok(())
    }

    /// Finds one event and locks it in one step.
    pub(super) async fn naive_batch(&self, tables: &Tables) -> Result<Vec<(String, String)>> {
        let until = DateTime::from_millis(DateTime::now().timestamp_millis() + LOCK.as_millis() as i64);
        let locked = self
            .naive(tables)
            .find_one_and_update(
                doc! {"status": "pending"},
                doc! {"$set": {"status": "processing", "locked_by": "bench", "locked_until": until}},
            )
            .sort(doc! {"created_at": 1})
            .return_document(ReturnDocument::After)
            .await?;
        let Some(row) = locked else {
            return Ok(Vec::new());
        };
        let text = |name| row.get_str(name).map(str::to_owned);
        Ok(vec![(text("_id")?, text("payload")?)])
    }

    pub(super) async fn naive_mark(&self, tables: &Tables, id: &str) -> Result<()> {
        let done = doc! {
            "$set": {"status": "published", "published_at": DateTime::now()},
            "$unset": {"locked_by": "", "locked_until": ""},
        };
        let marked = self.naive(tables).update_one(doc! {"_id": id}, done).await;
        marked
            .map(drop)
            .context("the update of the hand-written loop failed")
    }
}
