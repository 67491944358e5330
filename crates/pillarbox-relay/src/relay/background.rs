//! Background tasks: deletes old letters and old entries of the event log, and warns about unknown classes.

use std::{sync::Arc, time::Duration};

use crate::{
    dead::DeadLetters,
    event_log::EventLog,
    store::{Admin, StoreError},
};

/// How often to look. The age is counted in days, so this is often enough.
const EVERY: Duration = Duration::from_secs(3_600);
/// How many are deleted in one transaction.
const CHUNK: usize = 1_000;
/// The pause after fewer. There is none after a full chunk: an event log can grow as fast as events are delivered.
const REST: Duration = Duration::from_millis(100);

/// Deletes dead letters of this age, in an endless loop.
pub(super) async fn drop_old_letters(letters: Arc<dyn DeadLetters>, age: Duration) {
    drop_old("dead letters", age, || letters.expire(age, CHUNK)).await;
}

/// Deletes entries of the event log of this age, in an endless loop.
pub(super) async fn drop_old_entries(log: Arc<dyn EventLog>, age: Duration) {
    drop_old("entries of the event log", age, || log.expire(age, CHUNK)).await;
}

/// If the store is away, it tries again the next time.
async fn drop_old<F>(what: &str, age: Duration, mut expire: impl FnMut() -> F)
where
    F: Future<Output = Result<usize, StoreError>>,
{
    loop {
        let mut dropped = 0;
        loop {
            match expire().await {
                Ok(0) => break,
                Ok(some) => {
                    dropped += some;
                    if some < CHUNK {
                        tokio::time::sleep(REST).await;
                    }
                }
                Err(error) => {
                    tracing::debug!(why = error.chain(), "could not delete old {what}");
                    break;
                }
            }
        }
        if dropped > 0 {
            let days = age.as_secs() / 86_400;
            tracing::info!(dropped, days, "deleted {what} older than this many days");
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Warns about classes that this relay does not know. Other relays may keep the figures of these classes, for example
/// while a new configuration is rolled out. If no relay does, producers are refused in the end.
pub(super) async fn warn_of_classes(admin: Arc<dyn Admin>) {
    let Ok(status) = admin.status().await else {
        return;
    };
    let classes: Vec<&str> = status.pressure.iter().map(|class| &*class.class).collect();
    if !classes.is_empty() {
        tracing::warn!(
            classes = classes.join(", "),
            "the outbox limits how many events may be pending, but this relay's configuration has no \
             `backpressure.classes`: it does not keep the figures of these classes. Give it the classes of the other \
             relays, or remove them with an empty list"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_rests_only_when_little_is_left() {
        let left = Mutex::new(vec![0, 3, CHUNK, CHUNK]);
        let calls = Mutex::new(Vec::new());
        let begin = Instant::now();
        let expire = || {
            calls.lock().unwrap().push(begin.elapsed());
            let deleted = left.lock().unwrap().pop().unwrap_or_default();
            async move { Ok(deleted) }
        };
        let dropping = drop_old("entries", Duration::from_secs(1), expire);
        let _ = tokio::time::timeout(EVERY / 2, dropping).await;
        let zero = Duration::ZERO;
        assert_eq!(*calls.lock().unwrap(), [zero, zero, zero, REST]);
    }
}
