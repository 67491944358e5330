//! Wakes a relay within milliseconds, without polling the table.
//!
//! A connection's `data_version` changes when another connection has committed. This is exact, but each read is a
//! round trip to the connection's thread (0.2 ms in a debug build; every 20 ms that was 1.2 % of a core). Every
//! commit also appends to the log beside the database, and reading its length and time costs one system call. So
//! each wait starts with the exact check and then watches the log. If a coarse file time hides a commit, the next
//! wait finds it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use sqlx::SqliteConnection;
use tokio::{sync::Mutex, time::Instant};

use super::connection::Connections;

const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(20);

pub(super) struct Watch {
    log: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    connection: Option<SqliteConnection>,
    version: Option<i64>,
    /// The pause between two checks of the log: short after a commit, longer while nothing happens.
    pause: Duration,
}

impl Watch {
    pub(super) fn new(database: &Path) -> Self {
        let mut log = OsString::from(database);
        log.push("-wal");
        Self {
            log: log.into(),
            seen: Mutex::default(),
        }
    }

    /// Returns when another connection has committed since the last call, or after `at_most`.
    pub(super) async fn wait(&self, at: &Connections, at_most: Duration) {
        let end = Instant::now() + at_most;
        let mut seen = self.seen.lock().await;
        let log = self.log();
        match seen.look(at).await {
            Ok(version) if seen.version.replace(version) == Some(version) => {}
            Ok(_) => {
                seen.pause = SHORTEST;
                return;
            }
            // The next read will report the problem.
            Err(_) => {
                seen.connection = None;
                return tokio::time::sleep_until(end).await;
            }
        }
        while Instant::now() < end {
            tokio::time::sleep_until(end.min(Instant::now() + seen.pause)).await;
            if self.log() != log {
                seen.pause = SHORTEST;
                return;
            }
            seen.pause = (seen.pause * 5 / 4).clamp(SHORTEST, LONGEST);
        }
    }

    /// The current state of the log; none before the first commit. Reading the metadata of a local file is so fast
    /// that it needs no other thread.
    fn log(&self) -> Option<(u64, SystemTime)> {
        let log = std::fs::metadata(&self.log).ok()?;
        Some((log.len(), log.modified().ok()?))
    }
}

impl Seen {
    async fn look(&mut self, at: &Connections) -> Result<i64, sqlx::Error> {
        // Not from a pool: getting it from there costs more than the check itself.
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(at.watch().await?),
        };
        sqlx::query_scalar("pragma data_version")
            .fetch_one(connection)
            .await
    }
}
