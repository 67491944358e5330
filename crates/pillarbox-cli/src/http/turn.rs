//! Waiting for one of a few places, but not for long: clients that wait hold memory and a connection each.

use std::{future::Future, time::Duration};

use axum::http::StatusCode;

use super::problem::Problem;

const TIME_MAX: Duration = Duration::from_secs(5);

/// Waits for a place. `what` are the requests that hold all of them.
pub(super) async fn turn<T>(place: impl Future<Output = T>, what: &str) -> Result<T, Problem> {
    tokio::time::timeout(TIME_MAX, place).await.map_err(|_| {
        let text = format!("too many other requests {what}: try again, here or at another relay");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, text)
    })
}

#[cfg(test)]
mod tests {
    use axum::{http::header, response::IntoResponse};
    use tokio::{sync::Mutex, time::Instant};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_gets_no_place_is_told_when_to_try_again() {
        let place = Mutex::new(());
        let first = turn(place.lock(), "count events").await.unwrap();
        let start = Instant::now();
        let refused = turn(place.lock(), "count events").await.unwrap_err();
        assert_eq!(start.elapsed(), TIME_MAX);
        let answer = refused.into_response();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(answer.headers().contains_key(header::RETRY_AFTER));
        drop(first);
        assert!(turn(place.lock(), "count events").await.is_ok());
    }
}
