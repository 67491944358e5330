//! Positions of the event log: a counter, and the end of what expired.

use mongodb::{
    bson::{Document, doc},
    options::{Acknowledgment, ReturnDocument, WriteConcern},
};

use super::{
    super::{connection::Connection, field},
    entry,
};
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
///
/// A counter that is below what readers have seen was restored, or lost with its node. Then the log goes on far above
/// everything that may have been handed out.
pub(super) async fn take(connection: &Connection, count: usize) -> Result<Position, StoreError> {
    // Before the counter: what is handed out meanwhile may be higher.
    let handed_out = connection.handed_out();
    let first = next(connection, count).await?;
    if first > handed_out {
        return Ok(first);
    }
    if last(connection).await? >= handed_out {
        pass_the_last(connection).await?;
    } else {
        leap(connection, handed_out).await?;
    }
    next(connection, count).await
}

async fn next(connection: &Connection, count: usize) -> Result<Position, StoreError> {
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

/// Goes on at a hundred thousand positions for each second since 1970. A void row stands for the positions between; those
/// before it that were taken and not written yet are decided as any others.
async fn leap(connection: &Connection, handed_out: Position) -> Result<(), StoreError> {
    tracing::warn!(
        "the event log may have lost its latest entries: new ones get positions above all that were handed out, and readers \
         of lost ones are told"
    );
    let now = connection.now().await?;
    let leap = (now.timestamp_millis() * 100).max(handed_out + 1);
    let at = connection.collections().await?;
    let raise = at
        .meta
        .find_one_and_update(doc! { "_id": TAKEN }, doc! { "$max": { "value": leap } })
        .upsert(true);
    let before = connection.run(raise).await?;
    let taken = before.map_or(0, |before: Document| field::number(&before, "value"));
    // Otherwise another relay has done it.
    if taken < leap {
        let voids = entry::voids(taken + 1, leap, now);
        connection.run(at.log.insert_one(voids)).await?;
    }
    Ok(())
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
    let last = last(connection).await?.max(expired);
    connection.hands_out(last);
    Ok(LogBounds { expired, last })
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
