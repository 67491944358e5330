//! An issuer that hangs, with paused time.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use serde_json::json;

use super::{super::tests::N, *};

const HANGS: Duration = Duration::from_secs(5);

/// A source whose issuer answers with this after it has hung, and how often it was asked.
fn source(answer: Result<&'static str, ()>) -> (Source, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let jwks = answer.map(|id| json!({ "keys": [{ "kty": "RSA", "kid": id, "n": N, "e": "AQAB" }] }));
    let read = move || -> BoxFuture<'static, Result<Vec<u8>, String>> {
        count.fetch_add(1, Ordering::Relaxed);
        let answer = jwks.clone();
        Box::pin(async move {
            tokio::time::sleep(HANGS).await;
            let jwks = answer.map_err(|()| "it does not answer".to_owned())?;
            Ok(jwks.to_string().into_bytes())
        })
    };
    (
        Source::with_reading(Arc::new(read), Duration::from_secs(300)),
        asked,
    )
}

fn asked(count: &AtomicUsize) -> usize {
    count.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn requests_do_not_queue_behind_an_issuer_that_hangs() {
    let (source, count) = source(Err(()));
    let start = Instant::now();
    let request = async || {
        let unknown = source.with(Some("a")).await.err();
        (unknown, start.elapsed())
    };
    let answers = join_all((0..50).map(|_| request())).await;
    assert!(answers.iter().all(|(unknown, _)| *unknown == Some(Unknown::Keys)));
    assert_eq!(answers[0].1, HANGS, "the first one asks");
    assert!(answers[1..].iter().all(|(_, waited)| *waited == WAIT_MAX));
    assert_eq!(asked(&count), 1);
    // A request that comes shortly before the end gets its answer, and does not ask again.
    tokio::time::sleep(FIRST_EVERY).await;
    let late = async {
        tokio::time::sleep(HANGS - WAIT_MAX / 2).await;
        request().await
    };
    let (first, late) = tokio::join!(request(), late);
    assert_eq!((first.0, late.0), (Some(Unknown::Keys), Some(Unknown::Keys)));
    assert_eq!(first.1, late.1);
    assert_eq!(asked(&count), 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_does_not_end_the_question() {
    let (source, count) = source(Ok("a"));
    let gone = timeout(Duration::from_millis(1), source.with(Some("a"))).await;
    assert!(gone.is_err());
    tokio::time::sleep(HANGS).await;
    assert!(source.with(Some("a")).await.is_ok());
    assert_eq!(source.with(Some("b")).await.err(), Some(Unknown::Key));
    assert_eq!(source.with(Some("b")).await.err(), Some(Unknown::Key));
    assert_eq!(asked(&count), 2, "an unknown key asks once in {ASK_EVERY:?}");
}
