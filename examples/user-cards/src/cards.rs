//! The projection: a card for each user, built only from the events in Kafka.
//!
//! Kafka delivers at least once, and so does Pillarbox. But each event changes a card only once: the
//! transaction that changes the card also records that the event was processed, and the offset is committed
//! after it.

use anyhow::Result;
use futures::TryStreamExt;
use mongodb::{
    ClientSession, Collection, Database as Mongo, IndexModel,
    bson::{Document, doc},
    error::Error,
};
use pillarbox::{
    Inbox,
    consume::{Consumer, Context, Handler, HandlerError, Kafka, Received},
};
use rdkafka::ClientConfig;
use serde::{Deserialize, Serialize};

use crate::{Broker, Database, GROUP, TOPIC, database};

const LIST_MAX: i64 = 1_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Card {
    /// The user's id.
    #[serde(rename(deserialize = "_id"))]
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) email: String,
    /// The version of the user that the card shows.
    pub(crate) version: i64,
    /// How many events have changed the card. It equals the version if each event was applied once.
    pub(crate) events: i64,
}

/// An event about a user.
#[derive(Deserialize)]
struct Payload {
    user_id: String,
    name: String,
    email: String,
}

#[derive(Clone)]
pub(crate) struct Cards {
    cards: Collection<Document>,
}

/// Consumes until it is interrupted.
pub(crate) async fn project(address: &Database, broker: &Broker) -> Result<()> {
    let database = database::open(&address.mongodb).await?;
    let cards = Cards::open(&database).await?;
    Inbox::default().migrate(&database).await?;
    let mut kafka = ClientConfig::new();
    kafka
        .set("bootstrap.servers", broker.bootstrap())
        // The minimum that a broker allows: after a crash, another consumer takes over soon.
        .set("session.timeout.ms", "6000");
    let mut consumer = Consumer::new(GROUP, database)
        // An older state must not replace a newer one.
        .options(|options| options.newer_only = true)
        .start(Kafka::new(kafka, [TOPIC]), cards)
        .await?;
    tokio::select! {
        ended = consumer.finished() => Ok(ended?),
        signal = tokio::signal::ctrl_c() => {
            signal?;
            Ok(consumer.stop().await?)
        }
    }
}

impl Handler<Mongo> for Cards {
    async fn handle(
        &self,
        event: &Received,
        _: &Context,
        session: &mut ClientSession,
    ) -> Result<(), HandlerError> {
        let user: Payload = event.payload_as()?;
        let change = doc! {
            "$set": { "name": user.name, "email": user.email, "version": event.aggregate_version },
            "$inc": { "events": 1_i64 },
        };
        let change = self.cards.update_one(doc! { "_id": user.user_id }, change);
        change.upsert(true).session(session).await?;
        Ok(())
    }
}

impl Cards {
    pub(crate) async fn open(database: &Mongo) -> Result<Self> {
        let cards = database.collection("user_cards");
        // On older servers a collection must exist before a transaction writes to it.
        cards
            .create_index(IndexModel::builder().keys(doc! { "email": 1 }).build())
            .await?;
        Ok(Self { cards })
    }

    pub(crate) async fn list(&self) -> Result<Vec<Card>, Error> {
        let cards = self.cards.clone_with_type::<Card>();
        cards
            .find(doc! {})
            .sort(doc! { "_id": 1 })
            .limit(LIST_MAX)
            .await?
            .try_collect()
            .await
    }
}
