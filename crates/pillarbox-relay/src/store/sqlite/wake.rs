//! Waking up, in milliseconds and without a poll of the table.
//!
//! A connection's `data_version` changes when anybody else has committed: exact, but a look takes the way to the
//! connection's thread and back (0.2 ms in a debug build; every 20 ms that was 1.2 % of a core). Every commit also
//! appends to the log beside the database, and its length and time cost one system call. So each wait begins with the
//! exact look, and watches the log from then on; a commit that a coarse file time hides is found by the next wait.

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
    /// Between two looks at the log: short after a commit, longer as nothing happens.
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

    /// Returns when somebody has committed since the last call, or after `at_most`.
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
            // Whoever reads next will hear what is wrong.
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

    /// The log as it is now; none before the first commit. A look at a local file's entry is too short to leave the
    /// thread for.
    fn log(&self) -> Option<(u64, SystemTime)> {
        let log = std::fs::metadata(&self.log).ok()?;
        Some((log.len(), log.modified().ok()?))
    }
}

impl Seen {
    async fn look(&mut self, at: &Connections) -> Result<i64, sqlx::Error> {
        // Not from a pool: getting it from one costs more than the look itself.
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(at.watch().await?),
        };
        sqlx::query_scalar("pragma data_version")
            .fetch_one(connection)
            .await
    }
}
