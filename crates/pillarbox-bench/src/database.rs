//! What the measurements do differently on each database: they read sizes and HOT updates, hold a snapshot open, and
//! fill and read the plain table of the hand-written loop.

#[cfg(feature = "mongodb")]
mod mongo;

use std::{str::FromStr, time::Duration};

use anyhow::{Context as _, Result};
use pillarbox::table::Tables;
use pillarbox_relay::{connect::DatabaseOptions, driver};
use sqlx::{
    AssertSqlSafe, Connection, PgConnection, PgPool, Row, SqliteConnection, SqlitePool,
    sqlite::SqliteConnectOptions,
};

use super::Host;

#[derive(Clone)]
pub(super) enum Database {
    Postgres(PgPool),
    Sqlite(SqlitePool),
    #[cfg(feature = "mongodb")]
    Mongo(mongo::Mongo),
}

/// An idle transaction that keeps its snapshot until it is dropped.
pub(super) enum Held {
    Postgres(#[allow(dead_code)] PgConnection),
    Sqlite(#[allow(dead_code)] SqliteConnection),
    #[cfg(feature = "mongodb")]
    Mongo(#[allow(dead_code)] Box<mongo::Snapshot>),
}

/// An event in the table of the hand-written loop.
pub(super) struct NaiveRow {
    pub(super) id: String,
    pub(super) payload: String,
}

impl Database {
    pub(super) async fn connect(options: &DatabaseOptions) -> Result<Self> {
        match driver::store(&options.url).map(|driver| driver.about.kind) {
            Some("sqlite") => {
                let file = SqliteConnectOptions::from_str(&options.url)?.create_if_missing(true);
                Ok(Self::Sqlite(SqlitePool::connect_with(file).await?))
            }
            #[cfg(feature = "mongodb")]
            Some("mongodb") => Ok(Self::Mongo(mongo::Mongo::connect(&options.url).await?)),
            _ => Ok(Self::Postgres(PgPool::connect(&options.url).await?)),
        }
    }

    /// Takes a snapshot and keeps it, like a report that runs for hours.
    pub(super) async fn hold_snapshot(&self, options: &DatabaseOptions) -> Result<Held> {
        match self {
            Self::Postgres(_) => {
                let mut connection = PgConnection::connect(&options.url).await?;
                sqlx::raw_sql("begin isolation level repeatable read; select txid_current_snapshot()")
                    .execute(&mut connection)
                    .await?;
                Ok(Held::Postgres(connection))
            }
            Self::Sqlite(_) => {
                let mut connection = SqliteConnection::connect(&options.url).await?;
                sqlx::raw_sql("begin; select count(*) from sqlite_master")
                    .execute(&mut connection)
                    .await?;
                Ok(Held::Sqlite(connection))
            }
            #[cfg(feature = "mongodb")]
            Self::Mongo(mongo) => Ok(Held::Mongo(Box::new(mongo.hold_snapshot().await?))),
        }
    }

    /// Creates a place for the tables of the measurement: a schema, in MongoDB a database, in SQLite a
    /// prefix. Returns the name of the events' table.
    pub(super) async fn make_room(&self, mark: &str) -> Result<String> {
        match self {
            Self::Postgres(_) => {
                self.execute(&format!("create schema \"{mark}\""))
                    .await
                    .context("can't create a schema for the measurement")?;
                Ok(format!("{mark}.outbox_events"))
            }
            Self::Sqlite(_) => Ok(mark.to_owned()),
            #[cfg(feature = "mongodb")]
            Self::Mongo(_) => Ok(format!("{mark}.outbox_events")),
        }
    }

    /// Drops everything in that place.
    pub(super) async fn clear_room(&self, tables: &Tables) -> Result<()> {
        match self {
            Self::Postgres(_) => {
                let schema = tables.name().split('.').next().unwrap_or_default();
                self.execute(&format!("drop schema if exists \"{schema}\" cascade"))
                    .await
            }
            Self::Sqlite(pool) => {
                let sql = "select name from sqlite_master where type = 'table' and name like $1";
                let names: Vec<String> = sqlx::query_scalar(sql)
                    .bind(format!("{}%", tables.name()))
                    .fetch_all(pool)
                    .await?;
                for name in names {
                    self.execute(&format!("drop table if exists \"{name}\"")).await?;
                }
                Ok(())
            }
            #[cfg(feature = "mongodb")]
            Self::Mongo(mongo) => mongo.clear_room(tables).await,
        }
    }

    /// The size of the outbox's tables and indexes (SQLite: of the file).
    pub(super) async fn bytes(&self, tables: &Tables) -> Result<i64> {
        match self {
            Self::Postgres(pool) => {
                let sql = "select coalesce(sum(pg_total_relation_size(oid)), 0)::bigint from pg_class
                           where relkind = 'r' and relnamespace = $1::regnamespace";
                let schema = tables.name().split('.').next().unwrap_or_default();
                Ok(sqlx::query_scalar(sql).bind(schema).fetch_one(pool).await?)
            }
            Self::Sqlite(pool) => {
                let sql = "select page_count * page_size from pragma_page_count(), pragma_page_size()";
                Ok(sqlx::query_scalar(sql).fetch_one(pool).await?)
            }
            #[cfg(feature = "mongodb")]
            Self::Mongo(mongo) => mongo.bytes(tables).await,
        }
    }

    /// The share of HOT updates among the updates of the events' table. `None` if the database has no HOT
    /// updates.
    pub(super) async fn hot_share(&self, tables: &Tables, updates_expected: u64) -> Result<Option<f64>> {
        let Self::Postgres(pool) = self else {
            return Ok(None);
        };
        // A backend reports its counts when it is idle and when it ends.
        for _ in 0..50 {
            let row = sqlx::query(
                "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = $1::regclass",
            )
            .bind(tables.name())
            .fetch_one(pool)
            .await?;
            let (updates, hot): (i64, i64) = (row.get(0), row.get(1));
            if updates.unsigned_abs() >= updates_expected {
                return Ok(Some(hot as f64 / updates.max(1) as f64));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(None)
    }

    /// PostgreSQL: does now what autovacuum would do during the measurement.
    pub(super) async fn tidy(&self, tables: &Tables) -> Result<()> {
        match self {
            Self::Postgres(_) => self.execute(&format!("vacuum (analyze) {}", tables.name())).await,
            _ => Ok(()),
        }
    }

    async fn execute(&self, sql: &str) -> Result<()> {
        match self {
            Self::Postgres(pool) => {
                sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await?;
            }
            Self::Sqlite(pool) => {
                sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await?;
            }
            #[cfg(feature = "mongodb")]
            Self::Mongo(_) => anyhow::bail!("MongoDB has no SQL"),
        }
        Ok(())
    }

    /// Creates and fills the table that a hand-written worker would have.
    pub(super) async fn fill_naive(&self, tables: &Tables, payloads: &[String]) -> Result<()> {
        let (id, json, time, now) = match self {
            Self::Postgres(_) => ("uuid", "jsonb", "timestamptz", "clock_timestamp()"),
            Self::Sqlite(_) => ("text", "text", "text", "current_timestamp"),
            #[cfg(feature = "mongodb")]
            Self::Mongo(mongo) => return mongo.fill_naive(tables, payloads).await,
        };
        self.execute(&tables.render(&format!(
            "create table {{events_naive}} (id {id} primary key, payload {json} not null,
               created_at {time} not null default ({now}), processed boolean not null default false,
               processed_at {time});
             create index {{index_naive_unprocessed}} on {{events_naive}} (created_at) where not processed;"
        )))
        .await?;
        for chunk in payloads.chunks(100) {
            let rows: Vec<String> = chunk
                .iter()
                .map(|payload| format!("('{}', '{}')", uuid::Uuid::now_v7(), payload.replace('\'', "''")))
                .collect();
            let insert = tables.render("insert into {events_naive} (id, payload) values ");
            self.execute(&(insert + &rows.join(","))).await?;
        }
        Ok(())
    }

    /// The next 200 unprocessed events. On MongoDB the next one, locked, as the loop does it there.
    pub(super) async fn naive_batch(&self, tables: &Tables) -> Result<Vec<NaiveRow>> {
        let sql = tables.render(
            "select cast(id as text), cast(payload as text) from {events_naive}
             where not processed order by created_at limit 200",
        );
        let rows = match self {
            Self::Postgres(pool) => {
                let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(pool).await?;
                rows.iter()
                    .map(|row| (row.get(0), row.get(1)))
                    .collect::<Vec<(String, String)>>()
            }
            Self::Sqlite(pool) => {
                let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(pool).await?;
                rows.iter().map(|row| (row.get(0), row.get(1))).collect()
            }
            #[cfg(feature = "mongodb")]
            Self::Mongo(mongo) => mongo.naive_batch(tables).await?,
        };
        Ok(rows
            .into_iter()
            .map(|(id, payload)| NaiveRow { id, payload })
            .collect())
    }

    pub(super) async fn naive_mark(&self, tables: &Tables, id: &str) -> Result<()> {
        let (sql, id) = match self {
            Self::Postgres(_) => (
                "set processed = true, processed_at = now() where id = cast($1 as uuid)",
                id,
            ),
            Self::Sqlite(_) => (
                "set processed = true, processed_at = current_timestamp where id = $1",
                id,
            ),
            #[cfg(feature = "mongodb")]
            Self::Mongo(mongo) => return mongo.naive_mark(tables, id).await,
        };
        let sql = tables.render("update {events_naive} ") + sql;
        match self {
            Self::Postgres(pool) => {
                sqlx::query(AssertSqlSafe(sql))
                    .bind(id)
                    .execute(pool)
                    .await
                    .context("the update of the hand-written loop failed")?;
            }
            Self::Sqlite(pool) => {
                sqlx::query(AssertSqlSafe(sql))
                    .bind(id)
                    .execute(pool)
                    .await
                    .context("the update of the hand-written loop failed")?;
            }
            #[cfg(feature = "mongodb")]
            Self::Mongo(_) => {}
        }
        Ok(())
    }

    /// The processor time so far of the server processes for this database, if they run on this machine.
    pub(super) async fn cpu_seconds(&self, host: &dyn Host) -> Result<Option<f64>> {
        let Self::Postgres(pool) = self else {
            return Ok(None);
        };
        let pids: Vec<i32> = sqlx::query_scalar("select pid from pg_stat_activity")
            .fetch_all(pool)
            .await?;
        let used: Vec<f64> = pids
            .iter()
            .filter_map(|&pid| host.cpu_seconds_of(pid.unsigned_abs()))
            .collect();
        Ok((!used.is_empty()).then(|| used.iter().sum()))
    }
}
