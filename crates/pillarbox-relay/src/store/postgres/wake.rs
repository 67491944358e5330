//! Wakes a sleeping relay. A NOTIFY at every commit would serialise commits, so producers send it only while a
//! relay is marked as asleep. It is only a hint: polling finds every event anyway.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use pillarbox::table::Tables;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::{sync::Notify, task::JoinHandle, time::Instant};

use super::connection::{Connection, Sql, arguments, connect_options, statement};
use crate::{connect::DatabaseOptions, store::StoreError};

/// How long the mark is valid. A crashed relay must not make producers notify for ever.
const ASLEEP_SECONDS: i64 = 30;
/// How often the mark is renewed.
const ASLEEP_AGAIN: Duration = Duration::from_secs(10);
const RECONNECT_AFTER: Duration = Duration::from_millis(200);
const RECONNECT_AFTER_MAX: Duration = Duration::from_secs(10);

pub(super) struct Wakening {
    /// None: NOTIFY is turned off.
    address: Option<(PgConnectOptions, Duration)>,
    channel: String,
    asleep_sql: Sql,
    woken: Arc<Notify>,
    listener: Mutex<Option<JoinHandle<()>>>,
    asleep_since: Mutex<Option<Instant>>,
}

impl Wakening {
    pub(super) fn new(options: &DatabaseOptions, tables: &Tables) -> Self {
        let wanted = options.notify && !options.pooler;
        let address = connect_options(&options.url).ok().filter(|_| wanted);
        Self {
            address: address.map(|address| (address, options.connect_timeout)),
            channel: pillarbox::enqueue::postgres_channel(tables),
            asleep_sql: statement(tables, include_str!("sql/wake/asleep.sql")),
            woken: Arc::default(),
            listener: Mutex::default(),
            asleep_since: Mutex::default(),
        }
    }

    pub(super) fn listens(&self) -> bool {
        self.address.is_some()
    }

    pub(super) async fn set_asleep(&self, connection: &Connection, asleep: bool) -> Result<(), StoreError> {
        if self.address.is_none() {
            return Ok(());
        }
        let since = lock(&self.asleep_since).is_some();
        if !asleep && !since {
            return Ok(());
        }
        *lock(&self.asleep_since) = asleep.then(Instant::now);
        let seconds = asleep.then_some(ASLEEP_SECONDS);
        connection
            .rows(&self.asleep_sql, arguments!(seconds)?)
            .await
            .map(drop)
    }

    pub(super) async fn wait(&self, connection: &Connection, at_most: Duration) {
        self.listen();
        let again = lock(&self.asleep_since).is_some_and(|at| at.elapsed() > ASLEEP_AGAIN);
        if again && self.set_asleep(connection, true).await.is_err() {
            // The next read will report the problem.
            tracing::debug!("could not mark this relay as asleep");
        }
        let _ = tokio::time::timeout(at_most, self.woken.notified()).await;
    }

    /// Starts the listener, once, at the first wait.
    fn listen(&self) {
        let Some((address, timeout)) = &self.address else {
            return;
        };
        let mut listener = lock(&self.listener);
        if listener.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        *listener = Some(tokio::spawn(listen(
            address.clone(),
            *timeout,
            self.channel.clone(),
            self.woken.clone(),
        )));
    }
}

impl Drop for Wakening {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.listener).take() {
            task.abort();
        }
    }
}

/// Listens for ever. While the database is away, each wait lasts for its full time.
async fn listen(address: PgConnectOptions, timeout: Duration, channel: String, woken: Arc<Notify>) {
    let mut pause = RECONNECT_AFTER;
    loop {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(timeout)
            .max_lifetime(None)
            .idle_timeout(None)
            .connect_lazy_with(address.clone());
        if let Err(error) = hear(&pool, &channel, &woken, &mut pause).await {
            tracing::debug!(%error, "not listening for commits: polling finds them");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RECONNECT_AFTER_MAX);
    }
}

async fn hear(
    pool: &sqlx::PgPool,
    channel: &str,
    woken: &Notify,
    pause: &mut Duration,
) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(channel).await?;
    *pause = RECONNECT_AFTER;
    loop {
        // None: the connection broke and the listener has reconnected. A notification may have been missed.
        listener.try_recv().await?;
        woken.notify_one();
    }
}

/// The values are consistent even if another holder of the lock panicked.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
