//! MongoDB. A duplicate would end the whole transaction, so it is looked up before anything is written. If
//! two transactions process the same event at the same time, neither sees the other's entry. The unique index
//! then makes the second fail with a write conflict. That is transient: after a retry it finds the event.

mod attempts;

use std::time::Duration;

use mongodb::{
    ClientSession, Collection, Database, IndexModel,
    bson::{Bson, DateTime, Document, doc},
    error::{Error, ErrorKind, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT},
    options::{IndexOptions, ReadConcern, WriteConcern},
};

use super::{Database as InboxDatabase, Inbox, InboxError, Remember, Seen, Sighting, find};
use crate::{
    enqueue::{mongodb_in_transaction, mongodb_place},
    event::EventId,
    transaction::sealed,
};

/// Entries deleted in one command.
const FORGET_MAX: i64 = 1_000;
/// How long a commit with an unknown result is repeated. After that the whole event is retried, and found
/// processed.
const COMMITS_MAX: u32 = 3;

impl Remember for ClientSession {}

impl sealed::Remember for ClientSession {
    async fn remember(&mut self, inbox: &Inbox, sighting: Sighting<'_>) -> Result<Seen, InboxError> {
        if !mongodb_in_transaction(self).await? {
            return Err(InboxError::NoTransaction);
        }
        let client = self.client();
        let default = client.default_database();
        let default = inbox.database.as_deref().or(default.as_ref().map(Database::name));
        let (database, processed) = mongodb_place(&inbox.processed, default).ok_or(InboxError::NoDatabase)?;
        let processed = client.database(database).collection::<Document>(processed);
        let key = doc! { "consumer_group": sighting.group, "event_id": sighting.event_id.to_string() };
        if processed
            .find_one(key.clone())
            .session(&mut *self)
            .await?
            .is_some()
        {
            return Ok(Seen::Before);
        }
        let mut row = key;
        row.insert("entity_id", sighting.entity_id);
        row.insert("entity_version", sighting.version);
        row.insert("processed_at", DateTime::now());
        processed.insert_one(row).session(&mut *self).await?;
        let (Some(entity), Some(version), true) = (sighting.entity_id, sighting.version, sighting.newer)
        else {
            return Ok(Seen::First);
        };
        let (database, versions) = mongodb_place(&inbox.versions, default).ok_or(InboxError::NoDatabase)?;
        let versions = client.database(database).collection::<Document>(versions);
        newer(&versions, self, sighting.group, entity, version).await
    }

    async fn ended(&mut self, inbox: &Inbox, group: &str, event_id: &EventId) -> Result<(), InboxError> {
        let client = self.client();
        let default = client.default_database();
        let default = inbox.database.as_deref().or(default.as_ref().map(Database::name));
        let name = inbox.attempts();
        let (database, name) = mongodb_place(&name, default).ok_or(InboxError::NoDatabase)?;
        let attempts = client.database(database).collection::<Document>(name);
        let row = doc! { "_id": attempts::key(group, event_id) };
        attempts.delete_one(row).session(self).await?;
        Ok(())
    }
}

async fn newer(
    versions: &Collection<Document>,
    session: &mut ClientSession,
    group: &str,
    entity: &str,
    version: i64,
) -> Result<Seen, InboxError> {
    let key = doc! { "consumer_group": group, "entity_id": entity };
    let known = versions.find_one(key.clone()).session(&mut *session).await?;
    if let Some(last) = known.and_then(|known| known.get_i64("version").ok())
        && version <= last
    {
        return Ok(Seen::Stale { last });
    }
    let set = doc! { "$set": { "version": version } };
    versions
        .update_one(key, set)
        .upsert(true)
        .session(session)
        .await?;
    Ok(Seen::First)
}

impl InboxDatabase for Database {
    type Transaction = ClientSession;

    async fn begin(&self) -> Result<ClientSession, InboxError> {
        let mut session = self.client().start_session().await?;
        session
            .start_transaction()
            .read_concern(ReadConcern::snapshot())
            .write_concern(WriteConcern::majority())
            .await?;
        Ok(session)
    }

    async fn commit(&self, mut session: ClientSession) -> Result<(), InboxError> {
        let mut commits = 1;
        loop {
            match session.commit_transaction().await {
                Err(error)
                    if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) && commits < COMMITS_MAX =>
                {
                    commits += 1;
                }
                committed => return Ok(committed?),
            }
        }
    }

    async fn migrate(&self, inbox: &Inbox) -> Result<(), InboxError> {
        let (processed, versions) = collections(self, inbox)?;
        let unique = |keys: Document| {
            let options = IndexOptions::builder().unique(true).build();
            IndexModel::builder().keys(keys).options(options).build()
        };
        let age = IndexModel::builder().keys(doc! { "consumer_group": 1, "processed_at": 1 });
        processed
            .create_indexes([unique(doc! { "consumer_group": 1, "event_id": 1 }), age.build()])
            .await?;
        versions
            .create_index(unique(doc! { "consumer_group": 1, "entity_id": 1 }))
            .await?;
        let attempts = collection(self, inbox, &inbox.attempts()).ok_or(InboxError::NoDatabase)?;
        // It needs no index besides `_id`. If it exists already, that is not an error.
        let home = self.client().database(&attempts.namespace().db);
        match home.create_collection(attempts.name()).await {
            Err(error) if !is_there_already(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Without its unique index an inbox would let every duplicate through.
    async fn check(&self, inbox: &Inbox) -> Result<(), InboxError> {
        let (processed, versions) = collections(self, inbox)?;
        for (collection, second) in [(&processed, "event_id"), (&versions, "entity_id")] {
            let wanted = doc! { "consumer_group": 1, second: 1 };
            let mut there = match collection.list_indexes().await {
                Ok(there) => there,
                Err(error) if is_missing_collection(&error) => return Err(not_migrated(collection)),
                Err(error) => return Err(error.into()),
            };
            let mut found = false;
            while there.advance().await? {
                let index = there.deserialize_current()?;
                let unique = index.options.is_some_and(|options| options.unique == Some(true));
                found |= unique && same_keys(&index.keys, &wanted);
            }
            if !found {
                return Err(not_migrated(collection));
            }
        }
        Ok(())
    }

    async fn forget_some(&self, inbox: &Inbox, group: &str, older_than: Duration) -> Result<u64, InboxError> {
        let (processed, _) = collections(self, inbox)?;
        let age = i64::try_from(older_than.as_millis()).unwrap_or(i64::MAX);
        let before = DateTime::from_millis(DateTime::now().timestamp_millis().saturating_sub(age));
        // The index on (consumer_group, processed_at) serves it.
        let old = doc! { "consumer_group": group, "processed_at": { "$lt": before } };
        let mut found = processed
            .find(old)
            .sort(doc! { "processed_at": 1 })
            .limit(FORGET_MAX)
            .projection(doc! { "_id": 1 })
            .await?;
        let mut ids: Vec<Bson> = Vec::new();
        while found.advance().await? {
            ids.extend(found.deserialize_current()?.remove("_id"));
        }
        if ids.is_empty() {
            return Ok(0);
        }
        let forgotten = processed.delete_many(doc! { "_id": { "$in": ids } }).await?;
        Ok(forgotten.deleted_count)
    }

    fn place(&self, inbox: &Inbox) -> Inbox {
        match inbox.database {
            Some(_) => inbox.clone(),
            None => inbox.clone().in_database(self.name()),
        }
    }

    fn is_away(error: &(dyn std::error::Error + 'static)) -> bool {
        find::<Error>(error).is_some_and(|error| {
            let labels = [UNKNOWN_TRANSACTION_COMMIT_RESULT, "RetryableWriteError"];
            labels.iter().any(|label| error.contains_label(label)) || is_connection_trouble(error)
        })
    }

    fn is_conflict(error: &(dyn std::error::Error + 'static)) -> bool {
        find::<Error>(error).is_some_and(|error| {
            error.contains_label(TRANSIENT_TRANSACTION_ERROR) && !is_connection_trouble(error)
        })
    }
}

fn is_connection_trouble(error: &Error) -> bool {
    matches!(
        &*error.kind,
        ErrorKind::Io(_)
            | ErrorKind::ServerSelection { .. }
            | ErrorKind::ConnectionPoolCleared { .. }
            | ErrorKind::DnsResolve { .. }
    )
}

fn collections(
    database: &Database,
    inbox: &Inbox,
) -> Result<(Collection<Document>, Collection<Document>), InboxError> {
    collection(database, inbox, &inbox.processed)
        .zip(collection(database, inbox, &inbox.versions))
        .ok_or(InboxError::NoDatabase)
}

fn collection(database: &Database, inbox: &Inbox, name: &str) -> Option<Collection<Document>> {
    let default = inbox.database.as_deref().or(Some(database.name()));
    let (database_name, name) = mongodb_place(name, default)?;
    Some(database.client().database(database_name).collection(name))
}

/// The server may return the keys of an index as another number type than was given.
fn same_keys(keys: &Document, wanted: &Document) -> bool {
    keys.keys().eq(wanted.keys())
}

fn not_migrated(collection: &Collection<Document>) -> InboxError {
    InboxError::NotMigrated {
        table: collection.name().to_owned(),
        source: None,
    }
}

fn is_missing_collection(error: &Error) -> bool {
    const NAMESPACE_NOT_FOUND: i32 = 26;
    matches!(&*error.kind, ErrorKind::Command(refusal) if refusal.code == NAMESPACE_NOT_FOUND)
}

fn is_there_already(error: &Error) -> bool {
    const NAMESPACE_EXISTS: i32 = 48;
    matches!(&*error.kind, ErrorKind::Command(refusal) if refusal.code == NAMESPACE_EXISTS)
}
