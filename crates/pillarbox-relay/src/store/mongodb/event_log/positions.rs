//! Positions of the event log: a counter, and the end of what expired.

use mongodb::{
    bson::{Document, doc},
    options::{Acknowledgment, ReturnDocument, WriteConcern},
};

use super::super::{connection::Connection, field};
use crate::{
    event_log::{LogBounds, Position},
    store::StoreError,
};

/// The latest position that was taken.
const TAKEN: &str = "log_position";
/// The last position that expired.
const EXPIRED: &str = "log_expired";

/// Takes the next positions and returns the first of them.
///
/// One node's memory is enough. The entries follow the counter in the server's log of operations, so whenever they are
/// durable, it is. If it is lost with its node, the entries are as well, or they meet those of another relay and are
/// inserted again.
pub(super) async fn take(connection: &Connection, count: usize) -> Result<Position, StoreError> {
    let at = connection.collections().await?;
    let count = Position::try_from(count).unwrap_or(Position::MAX);
    let take = at
        .meta
        .find_one_and_update(doc! { "_id": TAKEN }, doc! { "$inc": { "value": count } })
        .upsert(true)
        .return_document(ReturnDocument::After)
        .write_concern(WriteConcern::builder().w(Acknowledgment::Nodes(1)).build());
    let taken = connection.run(take).await?;
    let last = taken.map_or(count, |taken| field::number(&taken, "value"));
    Ok(last - count + 1)
}

/// Goes on after the latest entry. The counter can be behind it if the outbox was restored from a copy.
pub(super) async fn pass_the_last(connection: &Connection) -> Result<(), StoreError> {
    let last = last(connection).await?;
    raise(connection, TAKEN, last).await
}

pub(super) async fn bounds(connection: &Connection) -> Result<LogBounds, StoreError> {
    let at = connection.collections().await?;
    let expired = connection.run(at.meta.find_one(doc! { "_id": EXPIRED })).await?;
    let expired = expired.map_or(0, |expired| field::number(&expired, "value"));
    Ok(LogBounds {
        expired,
        last: last(connection).await?.max(expired),
    })
}

pub(super) async fn has_expired(connection: &Connection, last: Position) -> Result<(), StoreError> {
    raise(connection, EXPIRED, last).await
}

async fn raise(connection: &Connection, name: &str, value: Position) -> Result<(), StoreError> {
    let at = connection.collections().await?;
    let raise = at
        .meta
        .update_one(doc! { "_id": name }, doc! { "$max": { "value": value } })
        .upsert(true);
    connection.run(raise).await.map(drop)
}

/// The position of the latest entry. 0: there is none.
async fn last(connection: &Connection) -> Result<Position, StoreError> {
    let at = connection.collections().await?;
    let last = at
        .log
        .find_one(doc! {})
        .sort(doc! { "_id": -1 })
        .projection(doc! { "_id": 1 });
    let last: Option<Document> = connection.run(last).await?;
    Ok(last.map_or(0, |last| field::number(&last, "_id")))
}
