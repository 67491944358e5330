//! A new database for each check, and the application's connections to it.

use std::sync::Arc;

use async_trait::async_trait;
use mongodb::{
    Client, ClientSession, Collection, Database,
    bson::{Bson, Document, doc},
};
use pillarbox::{EnqueueError, Enqueued, Event, EventId, Limits, Outbox, table::Tables};
use pillarbox_relay::{
    connect::{self, DatabaseOptions, OpenStore},
    dead::DeadLetters,
    store::{Admin, Store, records::Records},
};
use pillarbox_testkit::contract::store::{OpenTransaction, Row, StoreHarness};
use pillarbox_testkit::servers::Mongo;

pub(super) struct MongoHarness {
    pub(super) store: OpenStore,
    pub(super) url: String,
    /// The application's own client.
    pub(super) application: Client,
}

impl MongoHarness {
    pub(super) async fn new(server: &Mongo) -> Self {
        Self::at(server.database()).await
    }

    pub(super) async fn at(url: String) -> Self {
        let store = connect::store(&DatabaseOptions::new(&url)).unwrap();
        store.admin.migrate().await.unwrap();
        let application = Client::with_uri_str(&url).await.unwrap();
        Self {
            store,
            url,
            application,
        }
    }

    pub(super) fn database(&self) -> Database {
        self.application.default_database().unwrap()
    }

    pub(super) fn events(&self) -> Collection<Document> {
        self.database().collection("outbox_events")
    }

    pub(super) async fn session(&self) -> ClientSession {
        let mut session = self.application.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        session
    }
}

#[async_trait]
impl StoreHarness for MongoHarness {
    fn store(&self) -> Arc<dyn Store> {
        self.store.store.clone()
    }

    fn another(&self) -> Arc<dyn Store> {
        connect::store(&DatabaseOptions::new(&self.url)).unwrap().store
    }

    fn admin(&self) -> Arc<dyn Admin> {
        self.store.admin.clone()
    }

    fn dead_letters(&self) -> Option<Arc<dyn DeadLetters>> {
        Some(self.store.dead_letters.clone())
    }

    fn records(&self) -> Arc<dyn Records> {
        self.store.records.clone()
    }

    fn versions(&self) -> Option<Arc<dyn pillarbox_relay::check::versions::AggregateVersions>> {
        self.store.versions.clone()
    }

    fn gauge(&self) -> Option<Arc<dyn pillarbox_relay::pressure::Gauge>> {
        self.store.gauge.clone()
    }

    fn event_log(&self) -> Option<Arc<dyn pillarbox_relay::event_log::EventLog>> {
        self.store.event_log.clone()
    }

    async fn lose_log_position(&self) -> bool {
        let meta: Collection<Document> = self.database().collection("outbox_events_meta");
        let take = doc! { "$inc": { "value": 1_i64 } };
        let taken = meta.update_one(doc! { "_id": "log_position" }, take).await;
        taken.unwrap().modified_count == 1
    }

    async fn begin(&self) -> Box<dyn OpenTransaction> {
        Box::new(Open(self.session().await))
    }

    fn concurrent_transactions(&self) -> bool {
        true
    }

    async fn row(&self, id: EventId) -> Option<Row> {
        let these = doc! { "event_id": id.to_string() };
        let event = self.events().find_one(these.clone()).await.unwrap()?;
        let dead: Collection<Document> = self.database().collection("outbox_events_dead");
        let letter = dead.find_one(these).await.unwrap();
        let is_set = |name: &str| matches!(event.get(name), Some(Bson::DateTime(_)));
        Some(Row {
            status: event.get_str("status").unwrap().to_owned(),
            attempts: u32::try_from(event.get_i32("retry_count").unwrap()).unwrap(),
            last_error: event.get_str("last_error").ok().map(str::to_owned),
            first_attempt_at: is_set("first_attempt_at"),
            last_attempt_at: is_set("last_attempt_at"),
            published_at: is_set("published_at"),
            dead_reason: letter.map(|letter| letter.get_str("reason").unwrap().to_owned()),
        })
    }

    async fn corrupt(&self, id: EventId) -> bool {
        let spoil = doc! { "$set": { "payload": "{\"half\":" } };
        let done = self
            .events()
            .update_one(doc! { "event_id": id.to_string() }, spoil)
            .await
            .unwrap();
        done.modified_count == 1
    }
}

struct Open(ClientSession);

#[async_trait]
impl OpenTransaction for Open {
    async fn enqueue(&mut self, limits: &Limits, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        Outbox::new(Tables::default(), limits.clone())
            .enqueue_all(&mut self.0, events)
            .await
    }

    async fn commit(mut self: Box<Self>) {
        self.0.commit_transaction().await.unwrap();
    }

    async fn rollback(mut self: Box<Self>) {
        self.0.abort_transaction().await.unwrap();
    }
}
