//! How SQLite runs the statements it shares with PostgreSQL.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use pillarbox::table::Tables;
use sqlx::{
    AssertSqlSafe, Row, Sqlite, Transaction,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{
    SqliteStore,
    connection::{Connections, now},
    discover::json,
    statements::complete,
};
use crate::store::{
    StoreError,
    sql::{Argument, Dialect, Sql, SqlDatabase, SqlRow, SqlStore},
};

impl SqlStore for SqliteStore {
    type Database = Connections;

    fn database(&self) -> &Connections {
        &self.connections
    }
}

#[async_trait]
impl SqlDatabase for Connections {
    type Row = SqliteRow;
    type Tx = Transaction<'static, Sqlite>;
    const DIALECT: Dialect = Dialect::Sqlite;

    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn complete_own(sql: &str) -> String {
        complete(sql)
    }

    async fn query(&self, sql: Sql, arguments: Vec<Argument>) -> Result<Vec<SqliteRow>, StoreError> {
        let rows = bound(sql, arguments).fetch_all(self.reader()).await;
        rows.map_err(|error| self.error(error))
    }

    async fn query_log(&self, sql: Sql, arguments: Vec<Argument>) -> Result<Vec<SqliteRow>, StoreError> {
        self.query(sql, arguments).await
    }

    async fn browse(&self, sql: Sql, arguments: Vec<Argument>) -> Result<Vec<SqliteRow>, StoreError> {
        // Never closed.
        let _turn = self.browsing.acquire().await;
        self.query(sql, arguments).await
    }

    fn handed_out(&self, position: i64) {
        self.handed_out.fetch_max(position, Ordering::Relaxed);
    }

    async fn execute(&self, sql: Sql, arguments: Vec<Argument>) -> Result<Vec<SqliteRow>, StoreError> {
        let rows = bound(sql, arguments).fetch_all(self.writer()).await;
        rows.map_err(|error| self.error(error))
    }

    async fn begin_tx(&self) -> Result<Self::Tx, StoreError> {
        self.begin().await
    }

    async fn execute_in(
        &self,
        tx: &mut Self::Tx,
        sql: Sql,
        arguments: Vec<Argument>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        self.counted(1);
        let rows = bound(sql, arguments).fetch_all(&mut **tx).await;
        rows.map_err(|error| self.error(error))
    }

    async fn commit_tx(&self, tx: Self::Tx) -> Result<(), StoreError> {
        self.commit(tx).await
    }

    fn row_error(&self, error: sqlx::Error) -> StoreError {
        self.error(error)
    }
}

/// Lists are bound as JSON, ids as text, and the time behind the other arguments.
fn bound(sql: Sql, mut arguments: Vec<Argument>) -> Query<'static, Sqlite, SqliteArguments> {
    let mut sql = sql;
    if sql.contains("$now") {
        sql = sql.replace("$now", &format!("${}", arguments.len() + 1)).into();
        arguments.push(now().into());
    }
    // Safe: `SqlDatabase::statement` inserts only names that were checked and quoted.
    let query = sqlx::query(AssertSqlSafe(sql));
    arguments
        .into_iter()
        .fold(query, |query, argument| match argument {
            Argument::Integer(value) => query.bind(value),
            Argument::Real(value) => query.bind(value),
            Argument::Text(value) => query.bind(value),
            Argument::Integers(values) => query.bind(json(&values)),
            Argument::Texts(values) => query.bind(values.map(|values| json(&values))),
        })
}

impl SqlRow for SqliteRow {
    fn optional_integer(&self, column: usize) -> Result<Option<i64>, sqlx::Error> {
        self.try_get(column)
    }

    fn optional_text(&self, column: usize) -> Result<Option<String>, sqlx::Error> {
        let bytes = self.try_get::<Option<&[u8]>, _>(column)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    }

    fn exact_text(&self, column: usize) -> Result<Option<String>, sqlx::Error> {
        let bytes = self.try_get::<Option<&[u8]>, _>(column)?;
        Ok(bytes.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok()))
    }

    fn flag(&self, column: usize) -> Result<bool, sqlx::Error> {
        self.try_get(column)
    }

    fn optional_real(&self, column: usize) -> Result<Option<f64>, sqlx::Error> {
        self.try_get(column)
    }
}
