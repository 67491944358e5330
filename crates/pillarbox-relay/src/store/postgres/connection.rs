//! Connections to the database. All statements are sent through here.

use std::{
    path::PathBuf,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use pillarbox::{Limits, Outbox, table::Tables};
use sqlx::{
    AssertSqlSafe, Executor, PgPool, Postgres, Transaction,
    postgres::{PgArguments, PgConnectOptions, PgPoolOptions, PgRow},
};

use tokio::sync::Semaphore;
use url::Url;

use super::{error::explain, row::complete};
use crate::{
    connect::DatabaseOptions,
    store::{StoreError, StoreErrorKind},
    tls,
};

/// The statements are written for their indexes. With statistics that are minutes old, the planner must not choose
/// to read or sort the whole table instead. One plan serves all arguments, so it is made once. Statements are too
/// small for JIT and for parallel workers: starting a worker for each page halved the rate of draining 300,000
/// events. A relay that vanishes in a transaction must not keep its locks for hours, until TCP notices.
pub const PLANS: &str = "set idle_in_transaction_session_timeout = '60s'; set enable_seqscan = off; set enable_bitmapscan = off; set enable_hashjoin = off; \
                     set enable_mergejoin = off; set jit = off; set max_parallel_workers_per_gather = 0; \
                     set plan_cache_mode = force_generic_plan";
const BEGIN_WITH_PLANS: &str = "begin; set local idle_in_transaction_session_timeout = '60s'; set local enable_seqscan = off; set local enable_bitmapscan = off; \
                                set local enable_hashjoin = off; set local enable_mergejoin = off; \
                                set local jit = off; set local max_parallel_workers_per_gather = 0";

/// For people and for readers of the event log. What they ask for must not take the relay's own connections.
const READING_MAX: u32 = 3;
/// People's share of them.
const BROWSING_MAX: usize = 2;
/// The server itself gives up then. Otherwise it would go on with what nobody waits for any more.
const READING_LIMIT: &str = "set statement_timeout = '30s'";

pub(in crate::store) struct Connection {
    pool: PgPool,
    reading: PgPool,
    browsing: Semaphore,
    outbox: Outbox,
    /// No session state may be used. Two messages may reach two servers unless a transaction holds them together.
    pooler: bool,
    answer_timeout: Duration,
    statements: AtomicU64,
    /// The database was away since somebody asked.
    was_away: AtomicBool,
    /// The latest position of the event log that readers have seen.
    handed_out: AtomicI64,
}

/// A statement that contains the tables' names.
pub(super) type Sql = Arc<str>;

pub(super) fn statement(tables: &Tables, sql: &str) -> Sql {
    tables.render(&complete(sql)).into()
}

impl Connection {
    pub(super) fn open(options: &DatabaseOptions) -> Result<Self, StoreError> {
        let mut connect = connect_options(&options.url)?;
        if options.pooler {
            connect = connect.statement_cache_capacity(0);
        }
        let pool = |connections_max: u32, settings: String| {
            let mut pool = PgPoolOptions::new()
                .max_connections(connections_max)
                .acquire_timeout(options.connect_timeout)
                // A broken connection causes an error, which is retried. A ping before each statement would double the
                // round trips.
                .test_before_acquire(false)
                .idle_timeout(Duration::from_secs(600));
            if !options.pooler {
                pool = pool.after_connect(move |connection, _| {
                    let settings = AssertSqlSafe(settings.clone());
                    Box::pin(async move { connection.execute(settings).await.map(drop) })
                });
            }
            pool.connect_lazy_with(connect.clone())
        };
        Ok(Self {
            pool: pool(options.connections_max.max(1), PLANS.into()),
            reading: pool(READING_MAX, format!("{PLANS}; {READING_LIMIT}")),
            browsing: Semaphore::new(BROWSING_MAX),
            outbox: Outbox::new(options.tables.clone(), Limits::default()),
            pooler: options.pooler,
            answer_timeout: options.answer_timeout,
            statements: AtomicU64::new(0),
            was_away: AtomicBool::new(false),
            handed_out: AtomicI64::new(0),
        })
    }

    pub(super) fn tables(&self) -> &Tables {
        self.outbox.tables()
    }

    pub(super) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    pub(super) fn statements(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }

    pub(super) fn explain(&self, error: sqlx::Error) -> StoreError {
        let error = explain(error, self.tables().name());
        if error.kind == StoreErrorKind::Away {
            self.is_away();
        }
        error
    }

    pub(super) fn is_away(&self) {
        self.was_away.store(true, Ordering::Relaxed);
    }

    /// Whether the database was away since the last call. It may be another server now.
    pub(super) fn was_away(&self) -> bool {
        self.was_away.swap(false, Ordering::Relaxed)
    }

    pub(super) fn handed_out(&self) -> i64 {
        self.handed_out.load(Ordering::Relaxed)
    }

    pub(super) fn hands_out(&self, position: i64) {
        self.handed_out.fetch_max(position, Ordering::Relaxed);
    }

    /// Runs one statement on its own.
    pub(super) async fn rows(&self, sql: &Sql, arguments: PgArguments) -> Result<Vec<PgRow>, StoreError> {
        self.rows_from(&self.pool, None, sql, arguments).await
    }

    /// The same for readers of the event log that follow it.
    pub(super) async fn read(&self, sql: &Sql, arguments: PgArguments) -> Result<Vec<PgRow>, StoreError> {
        self.rows_from(&self.reading, Some(READING_LIMIT), sql, arguments)
            .await
    }

    /// The same for people.
    pub(super) async fn browse(&self, sql: &Sql, arguments: PgArguments) -> Result<Vec<PgRow>, StoreError> {
        let turn = tokio::time::timeout(self.answer_timeout, self.browsing.acquire());
        let Ok(_turn) = turn.await else {
            return Err(StoreError::new(
                StoreErrorKind::Away,
                "other queries of people take too long: try again later",
            ));
        };
        self.read(sql, arguments).await
    }

    async fn rows_from(
        &self,
        pool: &PgPool,
        settings: Option<&'static str>,
        sql: &Sql,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, StoreError> {
        if self.pooler {
            let mut tx = self.within(pool.begin_with(BEGIN_WITH_PLANS)).await?;
            if let Some(settings) = settings {
                // Only for this transaction, because the server connection is somebody else's afterwards.
                let settings = settings.replacen("set", "set local", 1);
                self.within(sqlx::raw_sql(AssertSqlSafe(settings)).execute(&mut *tx))
                    .await?;
            }
            let rows = self.rows_in(&mut tx, sql, arguments).await?;
            self.commit(tx).await?;
            return Ok(rows);
        }
        self.count();
        // Not through the pool itself, which would pass on every row once more.
        let mut connection = self.within(pool.acquire()).await?;
        let query = sqlx::query_with(AssertSqlSafe(sql.clone()), arguments);
        match tokio::time::timeout(self.answer_timeout, query.fetch_all(&mut *connection)).await {
            Ok(answer) => answer.map_err(|e| self.explain(e)),
            Err(_) => {
                // Otherwise it would keep its place in the pool until the answer comes.
                connection.close_on_drop();
                Err(self.silent())
            }
        }
    }

    /// Runs one statement that always returns one row.
    pub(super) async fn row(&self, sql: &Sql, arguments: PgArguments) -> Result<PgRow, StoreError> {
        let mut rows = self.rows(sql, arguments).await?;
        rows.pop().ok_or_else(|| self.explain(sqlx::Error::RowNotFound))
    }

    /// Begin and commit are not counted as statements: they do no work of their own, and a pooler needs them around
    /// each statement.
    pub(super) async fn begin(&self) -> Result<Transaction<'static, Postgres>, StoreError> {
        if self.pooler {
            return self.within(self.pool.begin_with(BEGIN_WITH_PLANS)).await;
        }
        self.within(self.pool.begin()).await
    }

    pub(super) async fn rows_in(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        sql: &Sql,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.count();
        let query = sqlx::query_with(AssertSqlSafe(sql.clone()), arguments).persistent(!self.pooler);
        self.within(query.fetch_all(&mut **tx)).await
    }

    /// Runs a script of several statements, without arguments.
    pub(super) async fn script_in(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        script: String,
    ) -> Result<(), StoreError> {
        self.count();
        sqlx::raw_sql(AssertSqlSafe(script))
            .execute(&mut **tx)
            .await
            .map(drop)
            .map_err(|e| self.explain(e))
    }

    /// Runs one statement that can't run in a transaction and may take long.
    pub(super) async fn outside(&self, sql: String) -> Result<(), StoreError> {
        self.count();
        let mut connection = self.pool.acquire().await.map_err(|e| self.explain(e))?;
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut *connection)
            .await
            .map(drop)
            .map_err(|e| self.explain(e))
    }

    pub(super) async fn commit(&self, tx: Transaction<'static, Postgres>) -> Result<(), StoreError> {
        self.within(tx.commit()).await
    }

    /// The answer, within the timeout.
    async fn within<T>(&self, answer: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
        match tokio::time::timeout(self.answer_timeout, answer).await {
            Ok(answer) => answer.map_err(|e| self.explain(e)),
            Err(_) => Err(self.silent()),
        }
    }

    fn silent(&self) -> StoreError {
        self.is_away();
        StoreError::new(
            StoreErrorKind::Away,
            format!(
                "the database did not answer within {} s",
                self.answer_timeout.as_secs()
            ),
        )
    }

    fn count(&self) {
        self.statements.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn connect_options(url: &str) -> Result<PgConnectOptions, StoreError> {
    let options = PgConnectOptions::from_str(url).map_err(|error| {
        StoreError::new(
            StoreErrorKind::Misconfigured,
            "the database's address can't be read. Write postgres://user:password@host:5432/database",
        )
        .with_source(error)
    })?;
    check_files(url)?;
    Ok(match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("pillarbox"),
    })
}

/// sqlx reads the files for each connection. Its errors don't name them, and it ignores a file without a certificate.
fn check_files(url: &str) -> Result<(), StoreError> {
    const NAMED: &str = "the database's address";
    let Ok(url) = Url::parse(url) else { return Ok(()) };
    for (name, value) in url.query_pairs() {
        // sqlx also takes the text of a file.
        if value.trim_start().starts_with(tls::INLINE_PEM) {
            continue;
        }
        let path = PathBuf::from(&*value);
        match &*name {
            "sslrootcert" | "ssl-root-cert" | "ssl-ca" | "sslcert" | "ssl-cert" => {
                tls::certificates_file(path, NAMED)?;
            }
            "sslkey" | "ssl-key" => {
                tls::private_key_file(path, NAMED)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Collects arguments. Encoding these types can't fail; if it does, it is reported as an error of the statement.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => {
        $crate::store::postgres::connection::arguments!(in sqlx::postgres::PgArguments::default(); $($value),*)
    };
    // Appends to existing arguments.
    (in $before:expr; $($value:expr),* $(,)?) => {{
        #[allow(unused_imports)]
        use sqlx::Arguments as _;
        #[allow(unused_mut)]
        let mut arguments: sqlx::postgres::PgArguments = $before;
        #[allow(unused_mut)]
        let mut added: Result<(), sqlx::error::BoxDynError> = Ok(());
        $( added = added.and_then(|()| arguments.add($value)); )*
        match added {
            Ok(()) => Ok(arguments),
            Err(problem) => Err($crate::store::StoreError::new(
                $crate::store::StoreErrorKind::Refused,
                "an argument can't be sent to the database",
            )
            .with_source(problem)),
        }
    }};
}
pub(super) use arguments;
