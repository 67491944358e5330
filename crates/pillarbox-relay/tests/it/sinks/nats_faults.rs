//! NATS is away, frozen, or was never started.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use pillarbox_relay::{
    Sink,
    sink::{Outcome, Outgoing, SinkErrorKind, Streams},
};
use pillarbox_testkit::{
    contract::sink::{event, outgoing},
    servers::{Nats, free_port},
};

use super::nats::{failure, open, spec, stored};

fn batch(name: &str, size: usize) -> Vec<Outgoing> {
    (0..size)
        .map(|n| outgoing(event(&format!("{name}-{n}"), format!("\"{}\"", "x".repeat(300)))))
        .collect()
}

/// The server is killed and restarted while batches are published. Every event that was reported as delivered
/// must be stored.
#[tokio::test(flavor = "multi_thread")]
async fn delivered_events_survive_a_restart_within_a_batch() {
    let Some(mut server) = Nats::start().await else {
        return;
    };
    let sink = Arc::new(open(&server.url(), vec![spec("S", "contract.>")]));
    sink.apply_streams().await.unwrap();
    let (started, mut first) = tokio::sync::mpsc::channel(1);
    let publisher = tokio::spawn({
        let sink = sink.clone();
        async move {
            let (mut delivered, mut failed, mut after) = (Vec::new(), 0, 0);
            let deadline = Instant::now() + Duration::from_secs(30);
            // Loop until publishing has failed and then worked again.
            while after < 3 {
                assert!(Instant::now() < deadline, "it did not come back");
                let batch = batch("k", 500);
                let outcomes = sink.publish(&batch).await;
                for (outgoing, outcome) in batch.iter().zip(&outcomes) {
                    match outcome {
                        Outcome::Delivered => delivered.push(outgoing.event.event.id.clone()),
                        Outcome::Failed(_) => failed += 1,
                        Outcome::NotTried => panic!("every event must be tried"),
                    }
                }
                let _ = started.try_send(());
                let whole = outcomes.iter().all(|outcome| *outcome == Outcome::Delivered);
                after += usize::from(whole && failed > 0);
                if !whole {
                    let _ = sink.check().await;
                }
            }
            delivered
        }
    });
    first.recv().await.unwrap();
    server.stop().await;
    server.start_again().await;
    let delivered = publisher.await.unwrap();
    let there: HashSet<_> = stored(&server.url(), "S")
        .await
        .into_iter()
        .map(|event| event.id)
        .collect();
    let missing = delivered.iter().filter(|id| !there.contains(id)).count();
    assert_eq!(missing, 0, "of {} delivered events are missing", delivered.len());
}

#[tokio::test]
async fn a_broken_connection_is_reported_at_once_and_leaves_events_in_doubt() {
    let Some(mut server) = Nats::start().await else {
        return;
    };
    let sink = Arc::new(open(&server.url(), vec![spec("S", "contract.>")]));
    sink.apply_streams().await.unwrap();
    server.pause().await;
    let publishing = tokio::spawn({
        let sink = sink.clone();
        async move { (sink.publish(&batch("k", 10)).await, Instant::now()) }
    });
    // The frozen server has accepted nothing yet, so the batch must still wait.
    tokio::time::timeout(Duration::from_millis(200), async {
        while !publishing.is_finished() {
            tokio::task::yield_now().await
        }
    })
    .await
    .expect_err("nobody answered");
    let killed = Instant::now();
    server.kill().await;
    let (outcomes, told) = publishing.await.unwrap();
    for outcome in &outcomes {
        let error = failure(outcome);
        assert_eq!(
            (error.kind, error.in_doubt),
            (SinkErrorKind::Unreachable, true),
            "{error}"
        );
    }
    assert!(
        told.duration_since(killed) < Duration::from_secs(2),
        "it waited for the timeout"
    );
}

#[tokio::test]
async fn a_silent_server_is_a_timeout_in_doubt() {
    let Some(mut server) = Nats::start().await else {
        return;
    };
    let sink = open(&server.url(), vec![spec("S", "contract.>")]);
    sink.apply_streams().await.unwrap();
    server.pause().await;
    for outcome in sink.publish(&batch("k", 10)).await {
        let error = failure(&outcome);
        assert_eq!(
            (error.kind, error.in_doubt),
            (SinkErrorKind::Timeout, true),
            "{error}"
        );
    }
    server.resume().await;
    assert_eq!(sink.publish(&batch("l", 10)).await, vec![Outcome::Delivered; 10]);
}

#[tokio::test]
async fn a_server_that_was_never_there_is_unreachable_and_the_password_stays_hidden() {
    let port = free_port();
    let sink = open(&format!("nats://app:geheim@127.0.0.1:{port}"), vec![]);
    for error in [
        sink.check().await.unwrap_err(),
        failure(&sink.publish(&batch("k", 1)).await[0]).clone(),
    ] {
        assert_eq!(
            (error.kind, error.in_doubt),
            (SinkErrorKind::Unreachable, false),
            "{error}"
        );
        assert!(
            error.message.contains(&port.to_string()) && !error.message.contains("geheim"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn of_several_servers_one_that_answers_is_enough() {
    let Some(server) = Nats::start().await else { return };
    let url = format!("nats://127.0.0.1:{},127.0.0.1:{}", free_port(), server.port());
    let sink = open(&url, vec![spec("S", "contract.>")]);
    sink.apply_streams().await.unwrap();
    assert_eq!(sink.publish(&batch("k", 10)).await, vec![Outcome::Delivered; 10]);
}
