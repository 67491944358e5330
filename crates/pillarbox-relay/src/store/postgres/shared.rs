//! How PostgreSQL runs the statements it shares with SQLite.

use async_trait::async_trait;
use pillarbox::table::Tables;
use sqlx::{
    Arguments, Postgres, Row, Transaction, TypeInfo, ValueRef,
    postgres::{PgArguments, PgRow},
};

use super::{PostgresStore, connection::Connection, row::complete};
use crate::store::{
    StoreError, StoreErrorKind,
    sql::{Argument, Dialect, Sql, SqlDatabase, SqlRow, SqlStore},
};

impl SqlStore for PostgresStore {
    type Database = Connection;

    fn database(&self) -> &Connection {
        &self.connection
    }
}

#[async_trait]
impl SqlDatabase for Connection {
    type Row = PgRow;
    type Tx = Transaction<'static, Postgres>;
    const DIALECT: Dialect = Dialect::Postgres;

    fn tables(&self) -> &Tables {
        self.tables()
    }

    fn complete_own(sql: &str) -> String {
        complete(sql)
    }

    async fn query(&self, sql: Sql, arguments: Vec<Argument>) -> Result<Vec<PgRow>, StoreError> {
        self.rows(&sql, bound(arguments)?).await
    }

    async fn query_log(&self, sql: Sql, arguments: Vec<Argument>) -> Result<Vec<PgRow>, StoreError> {
        self.read(&sql, bound(arguments)?).await
    }

    async fn browse(&self, sql: Sql, arguments: Vec<Argument>) -> Result<Vec<PgRow>, StoreError> {
        self.browse(&sql, bound(arguments)?).await
    }

    fn handed_out(&self, position: i64) {
        self.hands_out(position);
    }

    async fn execute(&self, sql: Sql, arguments: Vec<Argument>) -> Result<Vec<PgRow>, StoreError> {
        self.rows(&sql, bound(arguments)?).await
    }

    async fn begin_tx(&self) -> Result<Self::Tx, StoreError> {
        self.begin().await
    }

    async fn execute_in(
        &self,
        tx: &mut Self::Tx,
        sql: Sql,
        arguments: Vec<Argument>,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.rows_in(tx, &sql, bound(arguments)?).await
    }

    async fn commit_tx(&self, tx: Self::Tx) -> Result<(), StoreError> {
        self.commit(tx).await
    }

    fn row_error(&self, error: sqlx::Error) -> StoreError {
        self.explain(error)
    }
}

fn bound(arguments: Vec<Argument>) -> Result<PgArguments, StoreError> {
    let mut bound = PgArguments::default();
    for argument in arguments {
        let added = match argument {
            Argument::Integer(value) => bound.add(value),
            Argument::Real(value) => bound.add(value),
            Argument::Text(value) => bound.add(value),
            Argument::Integers(values) => bound.add(values),
            Argument::Texts(values) => bound.add(values),
        };
        added.map_err(|problem| {
            StoreError::new(
                StoreErrorKind::Refused,
                "an argument can't be sent to the database",
            )
            .with_source(problem)
        })?;
    }
    Ok(bound)
}

impl SqlRow for PgRow {
    fn optional_integer(&self, column: usize) -> Result<Option<i64>, sqlx::Error> {
        let width = self.try_get_raw(column)?.type_info().name().to_owned();
        match width.as_str() {
            "INT2" => Ok(self.try_get::<Option<i16>, _>(column)?.map(i64::from)),
            "INT4" => Ok(self.try_get::<Option<i32>, _>(column)?.map(i64::from)),
            _ => self.try_get(column),
        }
    }

    fn optional_text(&self, column: usize) -> Result<Option<String>, sqlx::Error> {
        self.try_get(column)
    }

    fn exact_text(&self, column: usize) -> Result<Option<String>, sqlx::Error> {
        self.try_get(column)
    }

    fn flag(&self, column: usize) -> Result<bool, sqlx::Error> {
        self.try_get(column)
    }

    fn optional_real(&self, column: usize) -> Result<Option<f64>, sqlx::Error> {
        self.try_get(column)
    }
}
