//! The event log: a collection with a document for each entry. [`append`] and [`deaths`] write it, and this file reads
//! it.

pub(super) mod append;
mod conditions;
mod deaths;
mod entry;
mod life;
mod positions;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mongodb::{
    Cursor,
    bson::{DateTime, Document, RawDocumentBuf, doc},
    error::Error,
    options::Hint,
};
use pillarbox::EventId;

use self::conditions::{conditions, index};
use super::{
    MongoStore,
    document::time,
    error::{are_duplicates, is_duplicate},
    field,
};
use crate::{
    event_log::{
        EventLog, HourCount, Life, LogBounds, LogCounts, LogEntry, LogFilter, LogList, LogRow, Place,
        Position,
    },
    store::{
        PageLimit, StoreError,
        log_search::{self, Found, LIST_BYTES_MAX, SearchedLog, Span},
    },
};

#[async_trait]
impl EventLog for MongoStore {
    /// The server sends at most 16 MB at once, whatever the size of the entries.
    async fn read(&self, after: Position, limit: PageLimit) -> Result<Vec<LogRow>, StoreError> {
        let at = self.connection.collections().await?;
        let log = at.log.clone_with_type::<RawDocumentBuf>();
        let find = log
            .find(doc! { "_id": { "$gt": after } })
            .sort(doc! { "_id": 1 })
            .limit(limited(limit.events))
            .batch_size(u32::try_from(limit.events).unwrap_or(u32::MAX));
        let found = self
            .connection
            .run(async { within_bytes(find.await?, limit.bytes).await })
            .await?;
        let rows: Vec<LogRow> = found.0.iter().map(|found| entry::row(found)).collect();
        if let Some(last) = rows.last() {
            self.connection.hands_out(last.position());
        }
        Ok(rows)
    }

    async fn places(&self, after: Position, count: usize) -> Result<Vec<Place>, StoreError> {
        let at = self.connection.collections().await?;
        let find = at
            .log
            .find(doc! { "_id": { "$gt": after } })
            .sort(doc! { "_id": 1 })
            .limit(limited(count))
            .projection(doc! { "first": 1, "at": 1 });
        let found: Vec<Document> = self.connection.all(find).await?;
        let place = |found: &Document| Place {
            positions: entry::positions(found),
            at: field::time(found, "at"),
        };
        Ok(found.iter().map(place).collect())
    }

    async fn mark(&self) -> Result<Position, StoreError> {
        let at = self.connection.collections().await?;
        let position = positions::take(&self.connection, 1).await?;
        let now = self.connection.now().await?;
        let insert = at.log.insert_one(entry::void(position, now));
        match self.connection.run(unless_there(insert)).await? {
            true => self.connection.hands_out(position),
            // The counter is behind the log. Then the log has a position to start from.
            false => positions::pass_the_last(&self.connection).await?,
        }
        Ok(position)
    }

    /// An insert at a position that an open transaction has taken waits for the end of the transaction.
    async fn fill(&self, first: Position, last: Position) -> Result<(), StoreError> {
        if first > last {
            return Ok(());
        }
        let at = self.connection.collections().await?;
        let time = self.time_behind(last).await?;
        let voids = (first..=last).map(|position| entry::void(position, time));
        let insert = at.log.insert_many(voids).ordered(false);
        let filled = async {
            match insert.await {
                Err(error) if !are_duplicates(&error) => Err(error),
                _ => Ok(()),
            }
        };
        self.connection.run(filled).await
    }

    async fn skip(&self, first: Position, last: Position) -> Result<(), StoreError> {
        let next = self.places(first - 1, 1).await?.pop();
        if next.is_some_and(|next| next.positions.last <= last) {
            return Ok(());
        }
        let at = self.connection.collections().await?;
        let voids = entry::voids(first, last, self.time_behind(last).await?);
        let insert = unless_there(at.log.insert_one(voids));
        self.connection.run(insert).await.map(drop)
    }

    async fn bounds(&self) -> Result<LogBounds, StoreError> {
        positions::bounds(&self.connection).await
    }

    async fn list(
        &self,
        filter: &LogFilter,
        before: Option<Position>,
        count: usize,
    ) -> Result<LogList, StoreError> {
        log_search::list(self, filter, before, count).await
    }

    /// The indexes `published` and `died` serve it.
    async fn life(&self, id: &EventId) -> Result<Option<Life>, StoreError> {
        let _turn = self.connection.browsing().await;
        let row = life::row(&self.connection, id).await?;
        let at = self.connection.collections().await?;
        let log = at.log.clone_with_type::<RawDocumentBuf>();
        let mut entries = Vec::new();
        for status in ["published", "dead"] {
            let these = doc! { "event_id": id.to_string(), "status": status };
            let found = self.connection.all(log.find(these)).await?;
            entries.extend(found.iter().map(|found| entry::entry(found)));
        }
        entries.sort_by_key(|entry| entry.position);
        Ok((row.is_some() || !entries.is_empty()).then_some(Life { row, entries }))
    }

    async fn counts(&self, filter: &LogFilter, entries_max: Position) -> Result<LogCounts, StoreError> {
        log_search::counts(self, filter, entries_max).await
    }

    /// The end of what expires is recorded first: a reader that misses entries must learn why. If the relay dies before
    /// they are deleted, the next call deletes them.
    async fn expire(&self, age: Duration, limit: usize) -> Result<usize, StoreError> {
        let expired = self.bounds().await?.expired;
        let before = time(self.connection.now().await?);
        // A longer age than time has existed: nothing is that old.
        let Some(before) = before.checked_sub(age).ok().filter(|_| limit > 0) else {
            return Ok(0);
        };
        let at = self.connection.collections().await?;
        let oldest = at
            .log
            .find(doc! { "_id": { "$gt": expired } })
            .sort(doc! { "_id": 1 })
            .limit(limited(limit))
            .projection(doc! { "at": 1 });
        let oldest: Vec<Document> = self.connection.all(oldest).await?;
        let old = |found: &&Document| field::time(found, "at") < before;
        let Some(last) = oldest.iter().take_while(old).last() else {
            return Ok(0);
        };
        let last = field::number(last, "_id");
        positions::has_expired(&self.connection, last).await?;
        let these = doc! { "_id": { "$lte": last } };
        let gone = self.connection.run(at.log.delete_many(these)).await?;
        Ok(usize::try_from(gone.deleted_count).unwrap_or(usize::MAX))
    }
}

#[async_trait]
impl SearchedLog for MongoStore {
    async fn row_from(&self, position: Position) -> Result<Option<(Position, Timestamp)>, StoreError> {
        let at = self.connection.collections().await?;
        let next = at
            .log
            .find_one(doc! { "_id": { "$gte": position } })
            .sort(doc! { "_id": 1 })
            .projection(doc! { "at": 1 });
        let next = self.connection.run(next).await?;
        Ok(next.map(|next| (field::number(&next, "_id"), field::time(&next, "at"))))
    }

    async fn last_before(&self, position: Position) -> Result<Option<Position>, StoreError> {
        let at = self.connection.collections().await?;
        let last = at
            .log
            .find_one(doc! { "_id": { "$lt": position } })
            .sort(doc! { "_id": -1 })
            .projection(doc! { "_id": 1 });
        let last = self.connection.run(last).await?;
        Ok(last.map(|last| field::number(&last, "_id")))
    }

    /// An index on an id and the position serves a filter by aggregate, project, user or correlation id. Otherwise the
    /// one on the position does, within the span.
    async fn latest(&self, filter: &LogFilter, span: Span, count: usize) -> Result<Found, StoreError> {
        let _turn = self.connection.browsing().await;
        if count == 0 {
            return Ok(Found {
                entries: Vec::new(),
                more: true,
            });
        }
        let at = self.connection.collections().await?;
        let log = at.log.clone_with_type::<RawDocumentBuf>();
        let find = log
            .find(conditions(filter, span))
            .sort(doc! { "_id": -1 })
            .hint(Hint::Name(index(filter).into()))
            .limit(limited(count));
        let (found, more) = self
            .connection
            .run(async { within_bytes(find.await?, LIST_BYTES_MAX).await })
            .await?;
        let entries: Vec<LogEntry> = found.iter().map(|found| entry::entry(found)).collect();
        Ok(Found {
            more: more || entries.len() == count,
            entries,
        })
    }

    async fn count(&self, filter: &LogFilter, span: Span) -> Result<Vec<HourCount>, StoreError> {
        let _turn = self.connection.browsing().await;
        let at = self.connection.collections().await?;
        let by_hour = [
            doc! { "$match": conditions(filter, span) },
            doc! { "$group": {
                "_id": {
                    "hour": { "$dateTrunc": { "date": "$at", "unit": "hour" } },
                    "event_type": "$event_type",
                    "status": "$status",
                },
                "n": { "$sum": 1 },
            } },
            doc! { "$sort": { "_id": 1 } },
        ];
        let by_hour = at.log.aggregate(by_hour).hint(Hint::Name(index(filter).into()));
        let by_hour: Vec<Document> = self.connection.all(by_hour).await?;
        let count = |found: &Document| {
            let of = found.get_document("_id").ok()?;
            Some(HourCount {
                hour: field::time(of, "hour"),
                event_type: field::text(of, "event_type"),
                status: field::text(of, "status"),
                count: field::count(found, "n"),
            })
        };
        Ok(by_hour.iter().filter_map(count).collect())
    }
}

impl MongoStore {
    /// The time of the row behind a position, however late this is, so that times do not jump ahead. If there is none: now.
    async fn time_behind(&self, position: Position) -> Result<DateTime, StoreError> {
        let at = self.connection.collections().await?;
        let behind = at
            .log
            .find_one(doc! { "_id": { "$gt": position } })
            .sort(doc! { "_id": 1 })
            .projection(doc! { "at": 1 });
        let behind = self.connection.run(behind).await?;
        match behind.and_then(|row: Document| row.get_datetime("at").ok().copied()) {
            Some(time) => Ok(time),
            None => self.connection.now().await,
        }
    }
}

/// Inserts a row if its position is free. Returns whether it was.
async fn unless_there<T>(insert: impl IntoFuture<Output = Result<T, Error>>) -> Result<bool, Error> {
    match insert.await {
        Ok(_) => Ok(true),
        Err(error) if is_duplicate(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The first of these documents: as many as have this many bytes together, but at least one. Also whether there are
/// more.
async fn within_bytes(
    mut cursor: Cursor<RawDocumentBuf>,
    most: usize,
) -> Result<(Vec<RawDocumentBuf>, bool), Error> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    while cursor.advance().await? {
        bytes += cursor.current().as_bytes().len();
        if !found.is_empty() && bytes > most {
            return Ok((found, true));
        }
        found.push(cursor.current().to_owned());
    }
    Ok((found, false))
}

/// As the server's limit. 0 would mean no limit.
fn limited(count: usize) -> i64 {
    i64::try_from(count.max(1)).unwrap_or(i64::MAX)
}
