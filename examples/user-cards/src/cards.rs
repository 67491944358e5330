//! The projection: a card for each user, built from the events in Kafka and from nothing else.
//!
//! Kafka delivers at least once, and so does Pillarbox. A card changes once all the same: that an event was processed is
//! written in the transaction that changes the card, and the offset is committed after it.

use std::time::Duration;

use anyhow::Result;
use futures::{FutureExt, TryStreamExt};
use mongodb::{
    Client, ClientSession, Collection, Database as Mongo, IndexModel,
    bson::{DateTime, Document, doc},
    error::Error,
    options::IndexOptions,
};
use rdkafka::{
    ClientConfig, Message,
    consumer::{CommitMode, Consumer, StreamConsumer},
    message::{BorrowedMessage, Headers},
};
use serde::{Deserialize, Serialize};

use crate::{Broker, Database, GROUP, TOPIC, database};

const LIST_MAX: i64 = 1_000;
/// Before a card that could not be written is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Card {
    /// The user's id.
    #[serde(rename(deserialize = "_id"))]
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) email: String,
    /// The user's version that it shows.
    pub(crate) version: i64,
    /// How many events have changed it. The same as the version, if each was taken once.
    pub(crate) events: i64,
}

/// An event about a user.
struct Received {
    event_id: String,
    user_id: String,
    version: i64,
    name: String,
    email: String,
}

#[derive(Deserialize)]
struct Payload {
    user_id: String,
    name: String,
    email: String,
}

#[derive(Clone)]
pub(crate) struct Cards {
    client: Client,
    cards: Collection<Document>,
    processed: Collection<Document>,
}

/// Consumes until it is stopped.
pub(crate) async fn project(address: &Database, broker: &Broker) -> Result<()> {
    let cards = Cards::open(&database::open(&address.mongodb).await?).await?;
    let consumer: StreamConsumer = ClientConfig::new()
        .set("bootstrap.servers", broker.bootstrap())
        .set("group.id", GROUP)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("isolation.level", "read_committed")
        // The least a broker allows: another consumer takes over soon after a crash.
        .set("session.timeout.ms", "6000")
        .create()?;
    consumer.subscribe(&[TOPIC])?;
    loop {
        let message = match consumer.recv().await {
            Ok(message) => message,
            Err(error) => {
                eprintln!("Kafka: {error}");
                continue;
            }
        };
        match Received::read(&message) {
            Ok(event) => cards.take_for_sure(&event).await,
            // Stopping here would stop everything behind it.
            Err(problem) => eprintln!("offset {}: {problem}; passed over", message.offset()),
        }
        consumer.commit_message(&message, CommitMode::Async)?;
    }
}

impl Cards {
    pub(crate) async fn open(database: &Mongo) -> Result<Self> {
        let processed = database.collection("processed_events");
        let unique = IndexOptions::builder().unique(true).build();
        let once = doc! { "consumer_group": 1, "event_id": 1 };
        processed
            .create_index(IndexModel::builder().keys(once).options(unique).build())
            .await?;
        let cards = database.collection("user_cards");
        // A collection must be there before a transaction writes to it on older servers.
        cards
            .create_index(IndexModel::builder().keys(doc! { "email": 1 }).build())
            .await?;
        Ok(Self {
            client: database.client().clone(),
            cards,
            processed,
        })
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

    /// Skipping an event is not an option: it is tried until it is written.
    async fn take_for_sure(&self, event: &Received) {
        while let Err(error) = self.take_in_transaction(event).await {
            eprintln!("MongoDB: {error}; trying again");
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    async fn take_in_transaction(&self, event: &Received) -> Result<(), Error> {
        let mut session = self.client.start_session().await?;
        let take = session
            .start_transaction()
            .and_run((self, event), |session, all| {
                let (cards, event) = *all;
                cards.take(session, event).boxed()
            });
        take.await
    }

    async fn take(&self, session: &mut ClientSession, event: &Received) -> Result<(), Error> {
        let key = doc! { "consumer_group": GROUP, "event_id": &event.event_id };
        if self
            .processed
            .find_one(key.clone())
            .session(&mut *session)
            .await?
            .is_some()
        {
            return Ok(());
        }
        let mut processed = key;
        processed.extend(doc! {
            "entity_id": &event.user_id, "entity_version": event.version, "processed_at": DateTime::now(),
        });
        self.processed
            .insert_one(processed)
            .session(&mut *session)
            .await?;
        let card = self
            .cards
            .find_one(doc! { "_id": &event.user_id })
            .session(&mut *session)
            .await?;
        let last = card.and_then(|card| card.get_i64("version").ok()).unwrap_or(0);
        // An older state must not replace a newer one.
        if event.version <= last {
            return Ok(());
        }
        let change = doc! {
            "$set": { "name": &event.name, "email": &event.email, "version": event.version },
            "$inc": { "events": 1_i64 },
        };
        let change = self.cards.update_one(doc! { "_id": &event.user_id }, change);
        change.upsert(true).session(session).await?;
        Ok(())
    }
}

impl Received {
    fn read(message: &BorrowedMessage<'_>) -> Result<Self, String> {
        let header = |name: &str| {
            let headers = message.headers()?;
            let header = headers
                .iter()
                .find(|header| header.key.eq_ignore_ascii_case(name))?;
            String::from_utf8(header.value?.to_vec()).ok()
        };
        let needed = |name: &str| header(name).ok_or_else(|| format!("there is no header {name}"));
        let version = needed("Pillarbox-Aggregate-Version")?;
        let payload: Payload = serde_json::from_slice(message.payload().unwrap_or_default())
            .map_err(|error| format!("the payload is not about a user: {error}"))?;
        Ok(Self {
            event_id: needed("Pillarbox-Id")?,
            version: version
                .parse()
                .map_err(|_| "the version is no number".to_owned())?,
            user_id: payload.user_id,
            name: payload.name,
            email: payload.email,
        })
    }
}
