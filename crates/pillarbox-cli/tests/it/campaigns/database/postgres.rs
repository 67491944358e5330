//! PostgreSQL: shut down, crashed, frozen; sessions terminated.

use std::{collections::HashSet, path::Path, sync::Arc, time::Duration};

use pillarbox::EventId;
use pillarbox_testkit::{
    ledger::Ledger,
    proxy::Proxy,
    servers::{self, PostgresOptions},
    storm::{Source, Storm},
};
use rand::RngExt;
use sqlx::{AssertSqlSafe, PgPool, postgres::PgPoolOptions};
use tokio::{sync::Mutex, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Charges, Database};
use crate::campaigns::{intersection, producers::postgres as producers, until_answered};

pub(in crate::campaigns) struct Postgres {
    server: Arc<Mutex<servers::Postgres>>,
    url: String,
    /// The application's connections, directly to the server.
    pool: PgPool,
}

impl Database for Postgres {
    const NAME: &'static str = "PostgreSQL";
    const NOT_COVERED: &'static [&'static str] = &["PostgreSQL that fails over to a standby"];

    async fn start(_folder: &Path) -> Option<Self> {
        let server = servers::Postgres::start(PostgresOptions::default()).await?;
        let url = server.database().await;
        let pool = PgPoolOptions::new()
            .max_connections(16)
            .acquire_timeout(Duration::from_secs(10))
            .connect_lazy(&url)
            .unwrap();
        Some(Self {
            server: Arc::new(Mutex::new(server)),
            url,
            pool,
        })
    }

    async fn version(&self) -> String {
        let version: String =
            sqlx::query_scalar("select split_part(current_setting('server_version'), ' ', 1)")
                .fetch_one(&self.pool)
                .await
                .unwrap();
        format!("PostgreSQL {version}")
    }

    async fn link(&self) -> (Option<Arc<Proxy>>, String) {
        let proxy = Proxy::in_front_of(&self.url).await;
        let url = proxy.through(&self.url);
        (Some(Arc::new(proxy)), url)
    }

    async fn prepare(&self) {
        sqlx::query("create table counters (key text primary key, n bigint not null)")
            .execute(&self.pool)
            .await
            .unwrap();
    }

    fn produce(&self, ledger: &Arc<Ledger>, seed: u64, stop: CancellationToken) -> JoinSet<()> {
        producers::start(&self.pool, ledger, seed, &stop)
    }

    fn fail(&self, storm: &mut Storm) {
        let server = Arc::clone(&self.server);
        storm.add(|source| fail_server(server, source));
        let pool = self.pool.clone();
        storm.add(|source| end_sessions(pool, source));
    }

    async fn which_exist(&self, ids: &[EventId]) -> HashSet<EventId> {
        let found: Vec<EventId> = until_answered(async || {
            sqlx::query_scalar("select id from outbox_events where id = any($1)")
                .bind(ids)
                .fetch_all(&self.pool)
                .await
        })
        .await;
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

impl Postgres {
    async fn count(&self, sql: &'static str) -> u64 {
        let count: i64 =
            until_answered(async || sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await).await;
        count as u64
    }
}

async fn fail_server(server: Arc<Mutex<servers::Postgres>>, mut source: Source) {
    while source.next(2_000..6_000).await {
        let mut server = server.lock().await;
        match source.rng().random_range(0..3) {
            0 => {
                let _lasting = source.begin("database restarted");
                server.stop().await;
                source.last(0..1_000).await;
                server.start_again().await;
            }
            1 => {
                let _lasting = source.begin("database crashed");
                server.kill().await;
                source.last(0..1_000).await;
                server.start_again().await;
            }
            _ => {
                let _lasting = source.begin("database frozen");
                server.pause().await;
                source.last(200..4_000).await;
                server.resume().await;
            }
        }
    }
}

async fn end_sessions(pool: PgPool, mut source: Source) {
    while source.next(1_000..4_000).await {
        let share = f64::from(source.rng().random_range(1..=10)) / 10.0;
        let _lasting = source.begin("database sessions ended");
        // The server may be away.
        let _ = sqlx::query(
            "select pg_terminate_backend(pid) from pg_stat_activity
             where backend_type = 'client backend' and pid <> pg_backend_pid() and random() < $1",
        )
        .bind(share)
        .execute(&pool)
        .await;
    }
}
