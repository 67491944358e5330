//! SQLite: there is no server and no network. Instead, a long transaction of another process locks the file.

use std::{collections::HashSet, path::Path, sync::Arc, time::Duration};

use pillarbox::EventId;
use pillarbox_testkit::{
    ledger::Ledger,
    proxy::Proxy,
    storm::{Source, Storm},
};
use sqlx::{
    AssertSqlSafe, Connection, SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Charges, Database};
use crate::campaigns::{intersection, producers::sqlite as producers, until_answered};

pub(in crate::campaigns) struct Sqlite {
    options: SqliteConnectOptions,
    url: String,
    pool: SqlitePool,
}

impl Database for Sqlite {
    const NAME: &'static str = "SQLite";
    const NOT_COVERED: &'static [&'static str] = &[
        "SQLite on a disk that is full or fails",
        "SQLite beside a clock that steps back by more than 10 s: leases end by that clock, so the lanes of a relay that was \
         killed wait as long as the step",
    ];
    const CLOCK_SECONDS_MAX: i64 = 10;

    async fn start(folder: &Path) -> Option<Self> {
        let file = folder.join("outbox.db");
        let options = SqliteConnectOptions::new()
            .filename(&file)
            .busy_timeout(Duration::from_secs(10));
        let pool = SqlitePoolOptions::new()
            .max_connections(6)
            .acquire_timeout(Duration::from_secs(30))
            .connect_lazy_with(options.clone());
        let url = format!("sqlite:{}", file.display());
        Some(Self { options, url, pool })
    }

    async fn version(&self) -> String {
        let version: String = sqlx::query_scalar("select sqlite_version()")
            .fetch_one(&self.pool)
            .await
            .unwrap();
        format!("SQLite {version}")
    }

    async fn link(&self) -> (Option<Arc<Proxy>>, String) {
        (None, self.url.clone())
    }

    async fn prepare(&self) {
        sqlx::query("create table counters (key text primary key, n integer not null)")
            .execute(&self.pool)
            .await
            .unwrap();
    }

    fn produce(&self, ledger: &Arc<Ledger>, seed: u64, stop: CancellationToken) -> JoinSet<()> {
        producers::start(&self.pool, ledger, seed, &stop)
    }

    fn fail(&self, storm: &mut Storm) {
        let options = self.options.clone();
        storm.add(|source| lock_file(options, source));
    }

    async fn which_exist(&self, ids: &[EventId]) -> HashSet<EventId> {
        let mut found = Vec::new();
        for id in ids {
            let there: i64 = until_answered(async || {
                sqlx::query_scalar("select count(*) from outbox_events where id = ?1")
                    .bind(id.to_string())
                    .fetch_one(&self.pool)
                    .await
            })
            .await;
            found.extend((there > 0).then_some(id.clone()));
        }
        intersection(ids, found)
    }

    async fn unsettled(&self) -> u64 {
        self.count("select count(*) from outbox_events where status not in ('published', 'dead')")
            .await
    }

    async fn charges(&self) -> Charges {
        let errors =
            "select distinct coalesce(last_error, '') from outbox_events where attempts <> 0 limit 5";
        Charges {
            dead: self
                .count("select count(*) from outbox_events where status = 'dead'")
                .await,
            charged: self
                .count("select count(*) from outbox_events where attempts <> 0")
                .await,
            errors: until_answered(async || sqlx::query_scalar(errors).fetch_all(&self.pool).await).await,
        }
    }
}

impl Sqlite {
    async fn count(&self, sql: &'static str) -> u64 {
        let count: i64 =
            until_answered(async || sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await).await;
        count as u64
    }
}

/// Locks the file, sometimes for longer than the 5 s that the relay waits for the lock.
async fn lock_file(options: SqliteConnectOptions, mut source: Source) {
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    while source.next(500..4_000).await {
        // Others may hold the lock longer than this waits; then try again.
        if let Ok(writer) = connection.begin_with("begin immediate").await {
            let lasting = source.begin("database locked by a long writer");
            source.last(200..7_000).await;
            let _ = writer.rollback().await;
            drop(lasting);
        }
    }
}
