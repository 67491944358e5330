//! A broker that is killed, restarted or frozen.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use pillarbox_relay::{
    Sink,
    sink::{Outcome, Outgoing, SinkErrorKind, kafka::KafkaSink},
};
use pillarbox_testkit::{contract::sink::event, servers::Kafka, wait};
use tokio::sync::watch;

use super::harness::{TIMEOUT, failure, in_order, open, read, to};

const KEYS: usize = 10;

#[derive(Clone, Copy, Default)]
struct Progress {
    arrived: usize,
    /// Batches in which an event got no answer in time.
    timed_out: usize,
}

/// Publishes numbered events of some keys until it is stopped. Like the engine, it sends failed events again
/// before later ones. Returns how many arrived according to the sink.
async fn keep_publishing(
    sink: Arc<KafkaSink>,
    stop: watch::Receiver<bool>,
    progress: watch::Sender<Progress>,
) -> usize {
    let mut next = 0;
    let mut waiting: Vec<Outgoing> = Vec::new();
    while !*stop.borrow() || !waiting.is_empty() {
        while waiting.len() < 100 && !*stop.borrow() {
            waiting.push(to(
                "orders",
                event(&format!("k{}", next % KEYS), next.to_string()),
            ));
            next += 1;
        }
        let began = Instant::now();
        let outcomes = sink.publish(&waiting).await;
        assert!(
            began.elapsed() < TIMEOUT + Duration::from_secs(2),
            "{:?}",
            began.elapsed()
        );
        let mut timed_out = false;
        let left = waiting
            .into_iter()
            .zip(outcomes)
            .filter_map(|(outgoing, outcome)| match outcome {
                Outcome::Delivered => None,
                Outcome::NotTried => Some(outgoing),
                Outcome::Failed(error) => {
                    timed_out |= error.kind == SinkErrorKind::Timeout;
                    let away = [
                        SinkErrorKind::Unreachable,
                        SinkErrorKind::Timeout,
                        SinkErrorKind::Unavailable,
                    ];
                    assert!(away.contains(&error.kind), "{error:?}");
                    Some(outgoing)
                }
            });
        waiting = left.collect();
        progress.send_modify(|progress| {
            progress.arrived = next - waiting.len();
            progress.timed_out += usize::from(timed_out);
        });
    }
    next
}

/// Waits until the count has risen by `more`.
async fn more(progress: &mut watch::Receiver<Progress>, count: fn(&Progress) -> usize, more: usize) {
    let target = count(&progress.borrow()) + more;
    let wait = progress.wait_for(|progress| count(progress) >= target);
    tokio::time::timeout(Duration::from_secs(60), wait)
        .await
        .expect("publishing stopped")
        .unwrap();
}

async fn survives(
    url_settings: &str,
    mut trouble: impl AsyncFnMut(&mut Kafka, &mut watch::Receiver<Progress>),
) {
    let Some(mut server) = Kafka::start().await else {
        return;
    };
    server.create_topic("orders", 4).await;
    let sink = Arc::new(open(&format!("{}?{url_settings}", server.url())));
    let (stop, stopped) = watch::channel(false);
    let (told, mut progress) = watch::channel(Progress::default());
    let publishing = tokio::spawn(keep_publishing(sink, stopped, told));
    for _ in 0..2 {
        more(&mut progress, |progress| progress.arrived, 500).await;
        trouble(&mut server, &mut progress).await;
    }
    more(&mut progress, |progress| progress.arrived, 500).await;
    stop.send_replace(true);
    let published = publishing.await.unwrap();
    in_order(&read(&server.bootstrap(), "orders", true).await, published);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_out_of_order_when_the_broker_is_killed() {
    survives("", async |server, _| {
        server.kill().await;
        server.start_again().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_out_of_order_when_the_broker_freezes() {
    survives("", async |server, progress| {
        server.pause().await;
        more(progress, |progress| progress.timed_out, 1).await;
        server.resume().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_out_of_order_when_the_broker_is_killed_during_transactions() {
    survives("transactions=true", async |server, _| {
        server.kill().await;
        server.start_again().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_broker_leaves_sent_events_in_doubt() {
    let Some(mut server) = Kafka::start().await else {
        return;
    };
    server.create_topic("orders", 1).await;
    let sink = open(&server.url());
    assert_eq!(
        sink.publish(&[to("orders", event("a", "0"))]).await,
        [Outcome::Delivered]
    );
    server.pause().await;
    let began = Instant::now();
    let outcomes = sink
        .publish(&[
            to("orders", event("a", "1")),
            to("orders", event("a", "2")),
            to("orders", event("b", "3")),
        ])
        .await;
    assert!(
        began.elapsed() < TIMEOUT + Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    for index in [0, 2] {
        let error = failure(&outcomes[index]);
        assert_eq!(
            (error.kind, error.in_doubt),
            (SinkErrorKind::Timeout, true),
            "{error}"
        );
    }
    assert_eq!(outcomes[1], Outcome::NotTried);
    let check = sink.check().await.unwrap_err();
    assert_eq!(check.kind, SinkErrorKind::Timeout, "{check}");
    server.resume().await;
    wait::until_ok(async || sink.check().await).await;
    assert_eq!(
        sink.publish(&[to("orders", event("a", "4"))]).await,
        [Outcome::Delivered]
    );
}
