//! MongoDB: writes into the transaction of the application's session. It takes one command for up to 1,000
//! new events, and one more, a lookup, if the ids may exist already.
//!
//! `seq`, the order of events, is written as an empty timestamp. The server replaces it with a new tick of
//! the cluster clock, document by document in the order given. A transaction takes its snapshot before that.
//! So if two transactions run one after the other because they change the same document, the later one's
//! events have the higher seqs.

mod keys;
mod pressure;

pub use self::pressure::clock::Clock;
pub(crate) use self::pressure::known::Knowledge;

use std::collections::HashSet;

use jiff::Timestamp as Time;
use mongodb::{
    ClientSession, Collection, Database,
    bson::{Bson, DateTime, Document, Timestamp, doc},
    error::{Error, ErrorKind},
};

use self::pressure::known::Shared;
use super::{EnqueueError, Enqueued, Outbox};
use crate::{
    event::Event,
    lane::lane_of,
    pressure::Pressure,
    transaction::{Transaction, sealed},
};

/// Events per command. More events need several commands; memory stays bounded.
const COMMAND_EVENTS_MAX: usize = 1_000;

impl Transaction for ClientSession {}

impl sealed::Write for ClientSession {
    async fn insert(&mut self, outbox: &Outbox, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        if !in_transaction(self).await? {
            return Err(EnqueueError::NoTransaction);
        }
        let at = Place::of(self, outbox)?;
        // Call this for each event, so that each first use is spent.
        let unused = events
            .iter()
            .filter(|event| event.first_use.take(&event.id))
            .count();
        // Check all topics before the first event is written, so that a refusal leaves nothing behind.
        pressure::make_room(&at, events.iter().map(|event| event.topic.as_str())).await?;
        if outbox.keys_are_serialised() {
            keys::touch(&at, self, events).await?;
        }
        let mut enqueued = Vec::with_capacity(events.len());
        for chunk in events.chunks(COMMAND_EVENTS_MAX) {
            let mut seen = match unused == events.len() {
                true => HashSet::new(),
                false => at.existing(self, chunk).await?,
            };
            let mut new = Vec::with_capacity(chunk.len());
            for event in chunk {
                // Of two events with one id, the first is written.
                if seen.insert(event.id.to_string()) {
                    new.push(document(event));
                    enqueued.push(Enqueued::New);
                } else {
                    enqueued.push(Enqueued::Duplicate);
                }
            }
            if !new.is_empty() {
                let insert = at.events.insert_many(&new).session(&mut *self);
                insert.await.map_err(|error| explain(error, chunk))?;
                pressure::wrote(&at, new.len() as u64);
            }
        }
        Ok(enqueued)
    }

    async fn pressure(&mut self, outbox: &Outbox, topic: &str) -> Result<Option<Pressure>, EnqueueError> {
        pressure::of(&Place::of(self, outbox)?, topic).await
    }
}

/// The collections of an outbox.
#[derive(Clone)]
struct Place {
    table: String,
    database: Database,
    events: Collection<Document>,
    known: Shared,
    clock: Clock,
}

impl Place {
    fn of(session: &ClientSession, outbox: &Outbox) -> Result<Self, EnqueueError> {
        let client = session.client();
        let default = client.default_database();
        let default = default.as_ref().map(Database::name);
        let table = outbox.tables().name();
        let (database, name) = place(table, default).ok_or(EnqueueError::NoDatabase)?;
        let database = client.database(database);
        let events = database.collection(name);
        Ok(Self {
            table: table.to_owned(),
            known: outbox.knowledge().of(&events.namespace()),
            clock: outbox.knowledge().clock().clone(),
            events,
            database,
        })
    }

    /// The name of a collection next to the events.
    fn beside(&self, suffix: &str) -> String {
        format!("{}_{suffix}", self.events.name())
    }

    /// The ids of these events that already exist. The lookup comes before the write because a duplicate ends
    /// the whole transaction, and an upsert gets no tick of the clock. The index on event_id serves it.
    ///
    /// A business transaction with a lookup took 1.3 times as long as one with a plain insert. So events that
    /// can't exist yet skip it.
    async fn existing(
        &self,
        session: &mut ClientSession,
        written: &[Event],
    ) -> Result<HashSet<String>, EnqueueError> {
        let ids: Vec<String> = written.iter().map(|event| event.id.to_string()).collect();
        let mut found = self
            .events
            .find(doc! { "event_id": { "$in": ids } })
            .projection(doc! { "_id": 0, "event_id": 1 })
            .session(&mut *session)
            .await?;
        let mut there = HashSet::new();
        while let Some(found) = found.next(session).await.transpose()? {
            there.extend(found.get_str("event_id").map(str::to_owned));
        }
        Ok(there)
    }
}

/// Converts an insert's error.
fn explain(error: Error, events: &[Event]) -> EnqueueError {
    const DUPLICATE: i32 = 11_000;
    let ErrorKind::InsertMany(refused) = &*error.kind else {
        return error.into();
    };
    let taken = refused.write_errors.iter().flatten().find_map(|refused| {
        let versions = refused.code == DUPLICATE && refused.message.contains("unique_versions");
        // The index of the error counts only the new events; the message contains the key.
        let shown = |event: &&Event| {
            let version = event
                .aggregate_version
                .map_or_else(String::new, |n| n.to_string());
            let (kind, id) = (&event.aggregate_type, &event.aggregate_id);
            let key =
                format!("{{ entity_type: \"{kind}\", entity_id: \"{id}\", entity_version: {version} }}");
            events.len() == 1 || refused.message.contains(&key)
        };
        events.iter().filter(|_| versions).find(shown)
    });
    match taken.and_then(|event| Some((event, event.aggregate_version?))) {
        Some((event, version)) => EnqueueError::VersionTaken {
            aggregate_type: event.aggregate_type.clone(),
            aggregate_id: event.aggregate_id.clone(),
            version,
            source: error.into(),
        },
        None => error.into(),
    }
}

/// The database and collection of a table name: `shop.outbox_events` is in the database `shop`,
/// `outbox_events` in the default one.
pub fn place<'a>(name: &'a str, default: Option<&'a str>) -> Option<(&'a str, &'a str)> {
    match name.split_once('.') {
        Some(place) => Some(place),
        None => default.map(|database| (database, name)),
    }
}

/// The event as it is stored, pending.
pub fn document(event: &Event) -> Document {
    let mut document = doc! {
        "seq": Timestamp { time: 0, increment: 0 },
        "lane": i32::from(lane_of(event.key())),
        "event_id": event.id.to_string(),
        "event_type": &event.event_type,
        "entity_type": &event.aggregate_type,
        "entity_id": &event.aggregate_id,
        "topic": &event.topic,
        "status": "pending",
        "retry_count": 0,
        "created_at": DateTime::now(),
        "schema_version": event.schema_version,
        // Text instead of a document, so that it is delivered byte for byte. It was checked to be JSON, and
        // so UTF-8.
        "payload": String::from_utf8_lossy(&event.payload).as_ref(),
    };
    let mut set = |name: &str, value: Option<Bson>| {
        if let Some(value) = value {
            document.insert(name, value);
        }
    };
    set("entity_version", event.aggregate_version.map(Bson::from));
    set("partition_key", event.partition_key.as_deref().map(Bson::from));
    set("stream", event.stream.as_deref().map(Bson::from));
    set("project_id", event.project_id.as_deref().map(Bson::from));
    set("user_id", event.user_id.as_deref().map(Bson::from));
    set("max_retries", event.retry.max_attempts.map(Bson::from));
    set("base_delay_ms", event.retry.base_delay_ms.map(Bson::from));
    set("max_delay_ms", event.retry.max_delay_ms.map(Bson::from));
    set(
        "backoff_multiplier",
        event.retry.backoff_multiplier.map(Bson::from),
    );
    if let Some((at, rest)) = event.available_at.map(milliseconds) {
        set("available_at", Some(at.into()));
        set("available_at_micros", (rest > 0).then_some(rest.into()));
    }
    if !event.headers.is_empty() {
        let header = |(name, value): (&String, &String)| (name.clone(), Bson::from(value.as_str()));
        let headers: Document = event.headers.iter().map(header).collect();
        set("headers", Some(headers.into()));
    }
    document
}

/// A date has milliseconds; the rest is stored next to it.
fn milliseconds(at: Time) -> (DateTime, i32) {
    let micros = at.as_microsecond();
    let rest = i32::try_from(micros.rem_euclid(1_000)).unwrap_or(0);
    (DateTime::from_millis(micros.div_euclid(1_000)), rest)
}

/// The driver does not expose whether a transaction is open, but it refuses to start a second one.
pub(crate) async fn in_transaction(session: &mut ClientSession) -> Result<bool, Error> {
    match session.start_transaction().await {
        Ok(()) => {
            session.abort_transaction().await?;
            Ok(false)
        }
        Err(error) => match &*error.kind {
            ErrorKind::Transaction { message, .. } => Ok(message.contains("already in progress")),
            _ => Err(error),
        },
    }
}
