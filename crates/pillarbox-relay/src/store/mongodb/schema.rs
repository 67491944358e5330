//! Creates the collections, and checks that they exist.
//!
//! | collection | `_id` | fields |
//! | --- | --- | --- |
//! | `<events>` | the driver's | see [`validator`] and `pillarbox::enqueue` |
//! | `_parked` | seq | lane, key, state (failed, held, delayed, blocked), due_at (set for delayed events and for the first failing or held event of a key, otherwise absent), failures: [{at, error, sink, relay}] |
//! | `_lanes` | the lane | owner, epoch, lease_until, low_mark |
//! | `_relays` | the relay's id, as text | name, seen_at, expires_at, troubles (JSON) |
//! | `<dead>` | seq | event_id, topic, key, event_type, reason, error, attempts, sink, relay, fingerprint, failures, died_at, state (open, replayed, discarded) |
//! | `_recoveries` | the driver's | seq, action, at, by, why, new_id |
//! | `_records` | {space, name, place} | version, claims, value, due_at, written_at, expires_at |
//! | `_pressure` | the place | class, topics: [pattern], soft, hard, max_delay_ms, pending, oldest_at, drained, measured_at |
//! | `_keys` | a number | n: a counter that writers with `serialise_keys` update first |
//! | `_log` | the position | status (published, dead, void), at, and except for a void position: seq, event_id, topic, stream, event_type, schema_version, entity_type, entity_id, entity_version, partition_key, project_id, user_id, created_at, retry_count as in `<events>`, correlation_id, sink, relay, failures as in `_parked`; published: payload, headers; dead: reason, error. A void document for many positions has first: the first of them |
//! | `_meta` | `schema_version`; `log_position`: the latest position that was taken; `log_expired`: the last one that expired | value |
//!
//! A seq is a timestamp of the cluster's clock here and in `<events>`; a low mark is the number the engine knows. Dates are
//! dates, of the server's clock.

mod index;
mod script;

use std::ops::RangeInclusive;

use mongodb::{
    Collection, IndexModel,
    bson::{Bson, DateTime, Document, doc},
};

use self::index::{Index, indexes, retired};
pub(super) use self::{
    index::{unique_versions, versions},
    script::{index_script, script},
};
use super::{
    connection::{Collections, Connection},
    error::{code, misconfigured, not_migrated, standalone},
};
use crate::store::{StoreError, StoreErrorKind};

pub(super) const VERSION: i32 = 8;
/// The versions that `migrate` can upgrade: they had other collections and indexes.
const UPGRADABLE: RangeInclusive<i32> = 3..=7;
/// The id of the document with the version.
pub(super) const VERSION_ID: &str = "schema_version";
pub(super) const VERSIONS_INDEX: &str = "entity_id_version";
/// Created only on request. `enqueue` knows it by its name.
pub(super) const UNIQUE_VERSIONS_INDEX: &str = "unique_versions";

/// Refuses documents that could never be found or settled when they are written.
fn validator() -> Document {
    let text = || doc! { "bsonType": "string" };
    doc! { "$jsonSchema": {
        "bsonType": "object",
        "required": [
            "seq", "lane", "status", "event_id", "event_type", "entity_type", "entity_id", "topic", "payload", "created_at",
        ],
        "properties": {
            "seq": { "bsonType": "timestamp" },
            "lane": { "bsonType": "int", "minimum": 0, "maximum": 255 },
            "status": { "enum": [
                "pending", "processing", "published", "failed", "held", "delayed", "dead",
            ] },
            "event_id": text(), "event_type": text(), "entity_type": text(), "entity_id": text(), "topic": text(),
            "created_at": { "bsonType": "date" },
        },
    } }
}

/// Moderate: a document that bypassed the validator, or is older than it, can still be settled.
fn validation() -> Document {
    doc! { "validator": validator(), "validationLevel": "moderate" }
}

/// The initial state of a lane.
fn lane() -> Document {
    doc! {
        "owner": Bson::Null, "epoch": 0_i64, "lease_until": DateTime::from_millis(0), "low_mark": 0_i64,
    }
}

/// Checks that the outbox exists, has this version, and is on a replica set.
pub(super) async fn check(connection: &Connection) -> Result<(), StoreError> {
    replica_set(connection).await?;
    let table = connection.tables.name();
    match version(connection).await? {
        Some(VERSION) => {
            let at = connection.collections().await?;
            // Without it, discovery would read every event ever delivered.
            indexed(connection, &at.events, "pending").await?;
            // Without it, the event log could have an event twice.
            indexed(connection, &at.log, "published").await
        }
        Some(version) if UPGRADABLE.contains(&version) => Err(StoreError::new(
            StoreErrorKind::NotMigrated,
            format!(
                "the outbox `{table}` is at version {version}, this pillarbox needs {VERSION}: run `pillarbox migrate`"
            ),
        )),
        Some(version) => Err(other_version(table, version)),
        None => Err(not_migrated(table)),
    }
}

async fn indexed(
    connection: &Connection,
    collection: &Collection<Document>,
    index: &str,
) -> Result<(), StoreError> {
    let names = match connection.run(collection.list_index_names()).await {
        Ok(names) => names,
        Err(error) if error.kind == StoreErrorKind::Away => return Err(error),
        // The collection does not exist.
        Err(_) => Vec::new(),
    };
    if names.iter().any(|name| name == index) {
        return Ok(());
    }
    Err(StoreError::new(
        StoreErrorKind::NotMigrated,
        format!(
            "the collection `{}` lacks the index `{index}`: the index was dropped, or the collection was created again. Run `pillarbox migrate`",
            collection.name()
        ),
    ))
}

/// Creates the outbox. Returns a line for each thing it did.
pub(super) async fn migrate(connection: &Connection) -> Result<Vec<String>, StoreError> {
    replica_set(connection).await?;
    let table = connection.tables.name();
    let before = version(connection).await?;
    // Continue even if it has this version: a collection that was dropped and then created by an insert lacks its
    // indexes.
    if let Some(version) = before.filter(|version| *version != VERSION && !UPGRADABLE.contains(version)) {
        return Err(other_version(table, version));
    }
    let at = connection.collections().await?;
    for (name, collection) in at.all() {
        make(connection, at, collection).await?;
        let models: Vec<IndexModel> = indexes(name).iter().map(Index::model).collect();
        if !models.is_empty() {
            connection.run(collection.create_indexes(models)).await?;
        }
        for index in retired(name) {
            drop_index(connection, collection, index).await?;
        }
    }
    for collection in &at.retired {
        connection.run(collection.drop()).await?;
    }
    let lanes: Vec<Document> = (0..pillarbox::lane::LANES)
        .map(|n| doc! { "q": { "_id": i32::from(n) }, "u": { "$setOnInsert": lane() }, "upsert": true })
        .collect();
    let make = doc! { "update": at.lanes.name(), "updates": lanes };
    let made = connection.run(at.database.run_command(make)).await?;
    if made
        .get_array("writeErrors")
        .is_ok_and(|errors| !errors.is_empty())
    {
        return Err(StoreError::new(
            StoreErrorKind::Away,
            "the lanes were not all created: run `pillarbox migrate` again",
        ));
    }
    // The last step: without it, nothing counts as created.
    let version = doc! { "$set": { "value": VERSION } };
    let make = at
        .meta
        .update_one(doc! { "_id": "schema_version" }, version)
        .upsert(true);
    connection.run(make).await?;
    if before == Some(VERSION) {
        return Ok(vec![format!(
            "the outbox `{table}` is up to date (version {VERSION})"
        )]);
    }
    if let Some(before) = before {
        return Ok(vec![format!(
            "the outbox `{table}` was at version {before} and is at version {VERSION} now"
        )]);
    }
    Ok(vec![format!(
        "created the outbox `{table}` (version {VERSION}) and the collections beside it"
    )])
}

async fn make(
    connection: &Connection,
    at: &Collections,
    collection: &Collection<Document>,
) -> Result<(), StoreError> {
    const ALREADY_THERE: i32 = 48;
    let namespace = collection.namespace();
    let mut command = doc! { "create": &namespace.coll };
    if namespace == at.events.namespace() {
        command.extend(validation());
    }
    connection.counted(1);
    let database = at.client.database(&namespace.db);
    match database.run_command(command).await {
        Err(error) if code(&error) == Some(ALREADY_THERE) => {}
        Err(error) => return Err(connection.error(&error)),
        Ok(_) => return Ok(()),
    }
    if namespace == at.events.namespace() {
        // A service's own collection becomes an outbox, or an earlier `migrate` was interrupted.
        let mut command = doc! { "collMod": &namespace.coll };
        command.extend(validation());
        connection.run(database.run_command(command)).await?;
    }
    Ok(())
}

async fn drop_index(
    connection: &Connection,
    collection: &Collection<Document>,
    index: &str,
) -> Result<(), StoreError> {
    const NOT_THERE: i32 = 27;
    connection.counted(1);
    match collection.drop_index(index).await {
        Err(error) if code(&error) != Some(NOT_THERE) => Err(connection.error(&error)),
        _ => Ok(()),
    }
}

async fn version(connection: &Connection) -> Result<Option<i32>, StoreError> {
    let at = connection.collections().await?;
    let found = connection
        .run(at.meta.find_one(doc! { "_id": "schema_version" }))
        .await?;
    Ok(found.map(|found| match found.get("value") {
        Some(Bson::Int32(version)) => *version,
        Some(Bson::Int64(version)) => i32::try_from(*version).unwrap_or(-1),
        Some(Bson::Double(version)) => *version as i32,
        _ => -1,
    }))
}

async fn replica_set(connection: &Connection) -> Result<(), StoreError> {
    let at = connection.collections().await?;
    let hello = connection
        .run(at.database.run_command(doc! { "hello": 1 }))
        .await?;
    if hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
        return Err(misconfigured(
            "this is a router of a sharded cluster, and an outbox needs one replica set: use the address of the shard that \
             has the application's data, or keep both in an unsharded deployment",
        ));
    }
    if hello.get_str("setName").is_err() {
        return Err(standalone());
    }
    Ok(())
}

fn other_version(table: &str, version: i32) -> StoreError {
    StoreError::new(
        StoreErrorKind::Misconfigured,
        format!(
            "the outbox `{table}` has version {version}, this pillarbox knows version {VERSION}: use the pillarbox that created it, \
             or a later one"
        ),
    )
}
