//! Waiting for something that must happen: ask until the answer is yes, or fail the test.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// Whatever takes longer has failed. Generous, because test machines are slow at times; and shorter than the time between
/// two sweeps, so that a sweep does not make up for what discovery missed.
pub const PATIENCE: Duration = Duration::from_secs(45);

const PAUSE: Duration = Duration::from_millis(10);

/// Asks until the answer is yes.
///
/// # Panics
/// After [`PATIENCE`].
pub async fn until<F: Future<Output = bool>>(what: &str, mut asked: impl FnMut() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !asked().await {
        assert!(
            Instant::now() < deadline,
            "waited {PATIENCE:?} in vain until {what}"
        );
        tokio::time::sleep(PAUSE).await;
    }
}

/// As [`until`], without a runtime.
///
/// # Panics
/// After [`PATIENCE`].
pub fn until_blocking(what: &str, mut asked: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !asked() {
        assert!(
            Instant::now() < deadline,
            "waited {PATIENCE:?} in vain until {what}"
        );
        std::thread::sleep(PAUSE);
    }
}
