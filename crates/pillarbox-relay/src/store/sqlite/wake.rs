//! Waking up: a connection's `data_version` changes when anybody else has committed. Asking it costs one look at shared
//! memory, so a relay notices a commit in milliseconds without a poll of the table.

use std::time::Duration;

use tokio::{sync::Mutex, time::Instant};

use super::connection::Connections;

const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(20);

pub(super) struct Watch(Mutex<Seen>);

struct Seen {
    version: Option<i64>,
    /// Between two looks: short after a commit, longer as nothing happens.
    pause: Duration,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Seen {
            version: None,
            pause: SHORTEST,
        }))
    }

    /// Returns when somebody has committed since the last call, or after `at_most`.
    pub(super) async fn wait(&self, at: &Connections, at_most: Duration) {
        let end = Instant::now() + at_most;
        let mut seen = self.0.lock().await;
        loop {
            let now: Result<i64, _> = sqlx::query_scalar("pragma data_version")
                .fetch_one(&at.watch)
                .await;
            let Ok(version) = now else {
                // Whoever reads next will hear what is wrong.
                return tokio::time::sleep_until(end).await;
            };
            if seen.version.replace(version) != Some(version) {
                seen.pause = SHORTEST;
                return;
            }
            let next = Instant::now() + seen.pause;
            if next >= end {
                return tokio::time::sleep_until(end).await;
            }
            tokio::time::sleep_until(next).await;
            seen.pause = (seen.pause * 5 / 4).min(LONGEST);
        }
    }
}
