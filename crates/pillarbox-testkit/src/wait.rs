//! Waits for something that must happen: checks until it is true, or fails the test.

use std::{fmt::Display, time::Duration};

use tokio::time::Instant;

/// The timeout. Generous, because test machines are sometimes slow. It is shorter than the time between two
/// sweeps, so that a sweep can't hide what discovery missed.
pub const PATIENCE: Duration = Duration::from_secs(45);

const PAUSE: Duration = Duration::from_millis(10);

/// Checks until the answer is true.
///
/// # Panics
/// After [`PATIENCE`].
pub async fn until(what: &str, mut asked: impl AsyncFnMut() -> bool) {
    until_ok(async || yes(asked().await, what)).await;
}

/// As [`until`], without a runtime.
///
/// # Panics
/// After [`PATIENCE`].
pub fn until_blocking(what: &str, mut asked: impl FnMut() -> bool) {
    until_ok_blocking(|| yes(asked(), what));
}

/// Asks until there is an answer, and returns it. An error says what there is instead.
///
/// # Panics
/// After [`PATIENCE`], with the last error.
pub async fn until_ok<T, E: Display>(asked: impl AsyncFnMut() -> Result<T, E>) -> T {
    until_ok_within(PATIENCE, asked).await
}

/// As [`until_ok`], with other patience: for what has much to do until then.
///
/// # Panics
/// After `patience`, with the last error.
pub async fn until_ok_within<T, E: Display>(
    patience: Duration,
    mut asked: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let start = Instant::now();
    loop {
        match asked().await {
            Ok(answer) => return answer,
            Err(error) => assert!(start.elapsed() < patience, "gave up after {patience:?}: {error}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// As [`until_ok`], without a runtime.
///
/// # Panics
/// After [`PATIENCE`], with the last error.
pub fn until_ok_blocking<T, E: Display>(mut asked: impl FnMut() -> Result<T, E>) -> T {
    let start = Instant::now();
    loop {
        match asked() {
            Ok(answer) => return answer,
            Err(error) => assert!(start.elapsed() < PATIENCE, "gave up after {PATIENCE:?}: {error}"),
        }
        std::thread::sleep(PAUSE);
    }
}

fn yes(answer: bool, what: &str) -> Result<(), String> {
    answer.then_some(()).ok_or_else(|| format!("not yet: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_time_is_returned() {
        let mut asked = 0;
        let answer = until_ok(async || {
            asked += 1;
            if asked < 100 { Err("too early") } else { Ok(asked) }
        });
        assert_eq!(answer.await, 100);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "gave up after 45s: it is 7")]
    async fn a_missing_answer_fails_with_the_last_error() {
        until_ok(async || Err::<(), _>("it is 7")).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "gave up after 45s: not yet: pigs fly")]
    async fn a_condition_that_never_holds_fails_with_its_name() {
        until("pigs fly", async || false).await;
    }
}
