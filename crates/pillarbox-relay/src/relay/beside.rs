//! Small jobs beside the engine.

use std::{sync::Arc, time::Duration};

use crate::{dead::DeadLetters, store::Admin};

/// How often to look for old letters: days are what it is about.
const EVERY: Duration = Duration::from_secs(3_600);
/// Letters dropped in one transaction, and the rest after it: nobody else should notice.
const CHUNK: usize = 1_000;
const REST: Duration = Duration::from_millis(100);

/// Drops dead letters of that age, for ever. A store that is away is tried again the next time.
pub(super) async fn drop_old_letters(letters: Arc<dyn DeadLetters>, age: Duration) {
    loop {
        let mut dropped = 0;
        loop {
            match letters.expire(age, CHUNK).await {
                Ok(0) => break,
                Ok(some) => dropped += some,
                Err(error) => {
                    tracing::debug!(why = error.chain(), "old dead letters could not be dropped");
                    break;
                }
            }
            tokio::time::sleep(REST).await;
        }
        if dropped > 0 {
            let days = age.as_secs() / 86_400;
            tracing::info!(dropped, days, "dropped dead letters older than that");
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Other relays may keep the figures of classes, as while a new configuration is rolled out. If none does, producers are
/// refused in the end.
pub(super) async fn warn_of_classes(admin: Arc<dyn Admin>) {
    let Ok(status) = admin.status().await else {
        return;
    };
    let classes: Vec<&str> = status.pressure.iter().map(|class| &*class.class).collect();
    if !classes.is_empty() {
        tracing::warn!(
            classes = classes.join(", "),
            "the outbox limits what may wait, and this relay's configuration has no `backpressure.classes`: it does not \
             keep the figures of these classes. Give it the classes of the other relays, or remove them with an empty list"
        );
    }
}
