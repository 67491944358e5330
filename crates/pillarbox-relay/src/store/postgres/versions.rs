//! The versions of aggregates, for the check that they increase.

use async_trait::async_trait;
use sqlx::Row;

use super::{
    PostgresStore,
    connection::{arguments, statement},
};
use crate::{
    check::versions::{Aggregate, AggregateVersions, LetThrough, VersionIndex},
    event::Seq,
    store::{StoreError, StoreErrorKind, sql},
};

#[async_trait]
impl AggregateVersions for PostgresStore {
    async fn latest(&self, aggregates: &[Aggregate]) -> Result<Vec<Option<LetThrough>>, StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/versions/latest.sql"));
        let (types, ids): (Vec<String>, Vec<String>) = aggregates.iter().cloned().unzip();
        let rows = self.connection.rows(&sql, arguments!(types, ids)?).await?;
        let mut latest = vec![None; aggregates.len()];
        for row in &rows {
            let read = || -> Result<(i64, i64, Seq), sqlx::Error> {
                Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
            };
            let (n, version, seq) = read().map_err(|e| self.connection.explain(e))?;
            if let Some(place) = usize::try_from(n - 1).ok().and_then(|n| latest.get_mut(n)) {
                *place = Some(LetThrough { version, seq });
            }
        }
        Ok(latest)
    }

    async fn dead_among(&self, seqs: &[Seq]) -> Result<Vec<Seq>, StoreError> {
        sql::dead_among(&*self.connection, seqs).await
    }

    async fn has_index(&self) -> Result<bool, StoreError> {
        Ok(self.is_whole(PLAIN).await? || self.is_whole(UNIQUE).await?)
    }

    async fn make_index(&self, index: VersionIndex) -> Result<Vec<String>, StoreError> {
        let name = match index {
            VersionIndex::Plain if self.has_index().await? => return Ok(Vec::new()),
            VersionIndex::Unique if self.is_whole(UNIQUE).await? => return Ok(Vec::new()),
            VersionIndex::Plain => PLAIN,
            VersionIndex::Unique => UNIQUE,
        };
        let made = self.make(name, self.index_sql(index)).await;
        if made.is_err() && index == VersionIndex::Unique {
            // The incomplete index would refuse new versions, and is not the index that was asked for.
            let _ = self.drop_index(UNIQUE).await;
        }
        made
    }

    fn index_sql(&self, index: VersionIndex) -> String {
        self.connection.tables().render(match index {
            VersionIndex::Plain => include_str!("sql/versions/index.sql"),
            VersionIndex::Unique => include_str!("sql/versions/unique_index.sql"),
        })
    }
}

const PLAIN: &str = "versions";
const UNIQUE: &str = "unique_versions";

impl PostgresStore {
    /// Whether an index exists and is valid.
    async fn is_whole(&self, index: &str) -> Result<bool, StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/versions/indexed.sql"));
        let name = self.connection.tables().beside(index);
        let row = self.connection.row(&sql, arguments!(name)?).await?;
        row.try_get(0).map_err(|e| self.connection.explain(e))
    }

    async fn make(&self, index: &str, sql: String) -> Result<Vec<String>, StoreError> {
        let tables = self.connection.tables();
        let in_making = statement(tables, include_str!("sql/versions/in_making.sql"));
        let row = self
            .connection
            .row(&in_making, arguments!(tables.events())?)
            .await?;
        if row.try_get(0).map_err(|e| self.connection.explain(e))? {
            return Err(StoreError::new(
                StoreErrorKind::Refused,
                "another process is making an index on the outbox now: try again when it is done",
            ));
        }
        // An index that exists and is not valid was left by an interrupted creation.
        self.drop_index(index).await?;
        self.connection.outside(sql).await?;
        Ok(vec![format!(
            "created index {}",
            tables.beside(index).replace('"', "")
        )])
    }

    async fn drop_index(&self, index: &str) -> Result<(), StoreError> {
        let name = self.connection.tables().beside(index);
        self.connection
            .outside(format!("drop index concurrently if exists {name}"))
            .await
    }
}
