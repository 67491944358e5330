//! Records, for both SQL databases.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::{Argument, Sql, SqlDatabase, SqlRow, SqlStore};
use crate::store::{
    StoreError,
    records::{Change, Record, RecordClaim, RecordKey, Records},
};

#[async_trait]
impl<S: SqlStore> Records for S {
    async fn read(
        &self,
        space: &str,
        name: Option<&str>,
        limit: usize,
    ) -> Result<(Timestamp, Vec<Record>), StoreError> {
        let database = self.database();
        let sql = database.statement(include_str!("records/read.sql"));
        let rows = database.query(sql, arguments!(space, name, limit)).await?;
        let mut now = Timestamp::UNIX_EPOCH;
        let records = database.read_rows(&rows, |row| {
            now = row.time(0)?;
            match row.optional_text(1)? {
                Some(_) => record(space, row, 1).map(Some),
                // No record: the row has only the time.
                None => Ok(None),
            }
        })?;
        Ok((now, records.into_iter().flatten().collect()))
    }

    async fn write(&self, changes: &[Change]) -> Result<bool, StoreError> {
        let database = self.database();
        if let [change] = changes {
            let (sql, arguments) = statement(database, change);
            return Ok(!database.execute(sql, arguments).await?.is_empty());
        }
        let mut tx = database.begin_tx().await?;
        for change in changes {
            let (sql, arguments) = statement(database, change);
            let written = database.execute_in(&mut tx, sql, arguments).await?;
            if written.is_empty() {
                // Dropping the transaction rolls back the earlier changes.
                return Ok(false);
            }
        }
        database.commit_tx(tx).await?;
        Ok(true)
    }

    async fn claim(&self, space: &str, lease: Duration) -> Result<RecordClaim, StoreError> {
        let database = self.database();
        // Check first: if nothing is due, no write lock is needed.
        let sql = database.statement(include_str!("records/next.sql"));
        let rows = database.query(sql, arguments!(space)).await?;
        let next = database.read_rows(&rows, |row| row.optional_integer(0))?;
        let Some(next) = next.into_iter().flatten().next() else {
            return Ok(RecordClaim::Nothing { next: None });
        };
        let next = Duration::from_micros(u64::try_from(next).unwrap_or_default());
        if next > Duration::ZERO {
            return Ok(RecordClaim::Nothing { next: Some(next) });
        }
        let sql = database.statement(include_str!("records/claim.sql"));
        let rows = database.execute(sql, arguments!(space, lease)).await?;
        Ok(
            match database.read_rows(&rows, |row| record(space, row, 0))?.pop() {
                Some(record) => RecordClaim::One(Box::new(record)),
                // Another relay was faster.
                None => RecordClaim::Nothing { next: Some(next) },
            },
        )
    }

    async fn drop_expired(&self) -> Result<(), StoreError> {
        let database = self.database();
        let sql = database.statement(include_str!("records/drop_expired.sql"));
        database.execute(sql, arguments!()).await.map(drop)
    }
}

/// The statement of a change. It returns a row if it was applied.
fn statement(database: &impl SqlDatabase, change: &Change) -> (Sql, Vec<Argument>) {
    let Change {
        key,
        version,
        content,
    } = change;
    let mut arguments = arguments!(&key.space, &key.name, key.place);
    if let Some(content) = content {
        arguments.extend(arguments!(&content.value, content.due_in, content.keep_for));
    }
    let sql = match (content, version) {
        (Some(_), 0) => include_str!("records/insert.sql"),
        (Some(_), _) => include_str!("records/update.sql"),
        (None, _) => include_str!("records/remove.sql"),
    };
    if *version > 0 || content.is_none() {
        arguments.extend(arguments!(*version));
    }
    (database.statement(sql), arguments)
}

/// From name, place, version, claims, value and time, the first of which is at `first`.
fn record(space: &str, row: &impl SqlRow, first: usize) -> Result<Record, sqlx::Error> {
    Ok(Record {
        key: RecordKey {
            space: space.to_owned(),
            name: row.text(first)?,
            place: row.integer(first + 1)?,
        },
        version: row.count(first + 2)?,
        claims: u32::try_from(row.count(first + 3)?).unwrap_or(u32::MAX),
        value: row.text(first + 4)?,
        written_at: row.time(first + 5)?,
    })
}
