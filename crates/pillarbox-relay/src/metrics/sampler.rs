//! Takes samples of the outbox while a relay runs.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{engine::Progress, store::Admin};

/// The shortest pause between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// While lanes have no owner, for example at the start, so that health follows soon.
const SAMPLE_EVERY_UNOWNED: Duration = Duration::from_millis(500);
/// The pause is at least this many times as long as the sample took. So samples take at most 1 % of the time.
const REST_TIMES: u32 = 100;
/// A sample that takes longer is given up. The next one is tried after the pause.
const SAMPLE_TIME_MAX: Duration = Duration::from_secs(30);

/// In an endless loop. If the database is away, the old sample stays and its age tells.
pub(crate) async fn keep_sampling(admin: Arc<dyn Admin>, progress: Arc<Progress>) {
    loop {
        let began = Instant::now();
        let mut pause = SAMPLE_EVERY;
        match tokio::time::timeout(SAMPLE_TIME_MAX, admin.sample()).await {
            Ok(Ok(sample)) => {
                if sample.lanes_without_owner > 0 {
                    pause = SAMPLE_EVERY_UNOWNED;
                }
                progress.set_sample(sample);
            }
            Ok(Err(error)) => tracing::debug!(why = error.chain(), "could not sample the outbox"),
            Err(_) => tracing::debug!("a sample of the outbox took too long"),
        }
        tokio::time::sleep((began.elapsed() * REST_TIMES).max(pause)).await;
    }
}
