//! The versions of aggregates, for the check that they increase.

use async_trait::async_trait;
use serde_json::json;
use sqlx::{Row, SqlStr};

use super::{SqliteStore, connection::Connections};
use crate::{
    check::versions::{Aggregate, AggregateVersions, LetThrough, VersionIndex},
    event::Seq,
    store::{StoreError, sql},
};

#[async_trait]
impl AggregateVersions for SqliteStore {
    async fn latest(&self, aggregates: &[Aggregate]) -> Result<Vec<Option<LetThrough>>, StoreError> {
        let at = &*self.connections;
        let rows = sqlx::query(at.statements.versions_latest.clone())
            .bind(json!(aggregates).to_string())
            .fetch_all(at.reader())
            .await
            .map_err(|e| at.error(e))?;
        let mut latest = vec![None; aggregates.len()];
        for row in &rows {
            let read = || -> Result<(i64, Option<Seq>, Option<i64>), sqlx::Error> {
                Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
            };
            if let (n, Some(seq), Some(version)) = read().map_err(|e| at.error(e))?
                && let Some(place) = usize::try_from(n).ok().and_then(|n| latest.get_mut(n))
            {
                *place = Some(LetThrough { version, seq });
            }
        }
        Ok(latest)
    }

    async fn dead_among(&self, seqs: &[Seq]) -> Result<Vec<Seq>, StoreError> {
        sql::dead_among(&*self.connections, seqs).await
    }

    async fn has_index(&self) -> Result<bool, StoreError> {
        Ok(self.is_there(PLAIN).await? || self.is_there(UNIQUE).await?)
    }

    async fn make_index(&self, index: VersionIndex) -> Result<Vec<String>, StoreError> {
        match index {
            VersionIndex::Plain if self.has_index().await? => Ok(Vec::new()),
            VersionIndex::Unique if self.is_there(UNIQUE).await? => Ok(Vec::new()),
            VersionIndex::Plain => self.make(PLAIN, self.sql_of(index)).await,
            VersionIndex::Unique => self.make(UNIQUE, self.sql_of(index)).await,
        }
    }

    fn index_sql(&self, index: VersionIndex) -> String {
        self.sql_of(index).as_str().to_owned()
    }
}

const PLAIN: &str = "versions";
const UNIQUE: &str = "unique_versions";

impl SqliteStore {
    fn sql_of(&self, index: VersionIndex) -> SqlStr {
        let statements = &self.connections.statements;
        match index {
            VersionIndex::Plain => statements.versions_index.clone(),
            VersionIndex::Unique => statements.versions_unique_index.clone(),
        }
    }

    async fn is_there(&self, index: &str) -> Result<bool, StoreError> {
        let at = &*self.connections;
        sqlx::query_scalar(at.statements.versions_indexed.clone())
            .bind(name(at, index))
            .fetch_one(at.reader())
            .await
            .map_err(|e| at.error(e))
    }

    async fn make(&self, index: &str, sql: SqlStr) -> Result<Vec<String>, StoreError> {
        let at = &*self.connections;
        sqlx::raw_sql(sql)
            .execute(at.writer())
            .await
            .map_err(|e| at.error(e))?;
        Ok(vec![format!("created index {}", name(at, index))])
    }
}

fn name(at: &Connections, index: &str) -> String {
    at.tables.index(index).replace('"', "")
}
