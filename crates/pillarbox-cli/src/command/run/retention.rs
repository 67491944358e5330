//! Drops dead letters that nobody needs any more.

use std::{sync::Arc, time::Duration};

use pillarbox_relay::dead::DeadLetters;

/// How often to look: days are what it is about.
const EVERY: Duration = Duration::from_secs(3_600);
/// Letters dropped in one transaction, and the rest after it: nobody else should notice.
const CHUNK: usize = 1_000;
const REST: Duration = Duration::from_millis(100);

/// Goes on until it is aborted. A store that is away is tried again the next time.
pub(super) async fn keep(letters: Arc<dyn DeadLetters>, age: Duration) {
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
            tracing::info!(
                dropped,
                days,
                "dropped dead letters that died longer ago than that"
            );
        }
        tokio::time::sleep(EVERY).await;
    }
}
