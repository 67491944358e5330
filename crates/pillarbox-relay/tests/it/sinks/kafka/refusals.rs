//! Events that a broker refuses: only they fail, with the reason, and no key gets a gap.

use std::{collections::HashSet, time::Instant};

use pillarbox_relay::{
    Sink,
    sink::{Outcome, Outgoing, SinkErrorKind},
};
use pillarbox_testkit::{contract::sink::event, servers, wait};

use super::harness::{TIMEOUT, failure, in_order, new_topic, new_topic_with, open, read, to};

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_topic_fails_its_own_events_at_once_and_only_until_it_is_made() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let there = new_topic(server, 1).await;
    let missing = format!("{there}-missing");
    let sink = open(&server.url());
    let began = Instant::now();
    let outcomes = sink
        .publish(&[
            to(&there, event("a", "1")),
            to(&missing, event("b", "2")),
            to(&there, event("b", "3")),
            to(&there, event("c", "4")),
        ])
        .await;
    assert!(
        began.elapsed() < TIMEOUT,
        "the refusal must not wait for the timeout"
    );
    let error = failure(&outcomes[1]);
    assert_eq!(
        (error.kind, error.in_doubt),
        (SinkErrorKind::MissingStream, false)
    );
    assert!(
        error.message.contains(&missing) && error.message.contains("topics apply"),
        "{error}"
    );
    assert_eq!(outcomes[0], Outcome::Delivered);
    assert_eq!(
        outcomes[2],
        Outcome::NotTried,
        "its key must wait, on every topic"
    );
    assert_eq!(outcomes[3], Outcome::Delivered);

    server.create_topic(&missing, 1).await;
    let again = [to(&missing, event("b", "2"))];
    wait::until("the new topic is noticed", async || {
        sink.publish(&again).await == [Outcome::Delivered]
    })
    .await;
}

/// The refused request contains other events, and other requests are in flight behind it.
#[tokio::test(flavor = "multi_thread")]
async fn losing_the_middle_of_three_holds_the_third() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic_with(server, 1, &[("max.message.bytes", "3000")]).await;
    let sink = open(&format!("{}?compression=none", server.url()));
    let large = "9".repeat(4000);
    let batch = [
        to(&topic, event("a", "1")),
        to(&topic, event("hot", "1")),
        to(&topic, event("hot", large.clone())),
        to(&topic, event("hot", "3")),
        to(&topic, event("b", "1")),
    ];
    let mut outcomes = sink.publish(&batch).await;
    let error = failure(&outcomes[2]).clone();
    assert_eq!((error.kind, error.in_doubt), (SinkErrorKind::TooLarge, false));
    assert!(error.message.contains("max.message.bytes"), "{error}");
    assert_eq!(outcomes[3], Outcome::NotTried);
    // The sink may have returned the others untried instead. They are sent the next time.
    for index in [0, 1, 4] {
        if outcomes[index] == Outcome::NotTried {
            outcomes[index] = sink.publish(&batch[index..=index]).await.remove(0);
        }
        assert_eq!(outcomes[index], Outcome::Delivered, "{index}");
    }
    assert_eq!(sink.publish(&batch[3..4]).await, [Outcome::Delivered]);
    let arrived = read(&server.bootstrap(), &topic, false).await;
    assert!(arrived.iter().all(|event| event.payload.len() < 4000));
    in_order(&arrived, 4);
}

/// A broker that has nothing from a producer yet accepts its second request even if it refused the first.
#[tokio::test(flavor = "multi_thread")]
async fn requests_after_a_refused_one_are_not_stored() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic_with(server, 1, &[("max.message.bytes", "3000")]).await;
    for round in 0..20 {
        let sink = open(&format!("{}?compression=none&linger_ms=0", server.url()));
        let hot = format!("hot{round}");
        let mut batch = vec![to(&topic, event(&hot, "9".repeat(4000)))];
        batch.extend((1..50).map(|n| to(&topic, event(&hot, n.to_string()))));
        let outcomes = sink.publish(&batch).await;
        assert_eq!(failure(&outcomes[0]).kind, SinkErrorKind::TooLarge);
        assert_eq!(outcomes[1..], vec![Outcome::NotTried; 49]);
    }
    assert_eq!(read(&server.bootstrap(), &topic, false).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_refused_here_and_there_leave_no_gap() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic_with(server, 2, &[("max.message.bytes", "3000")]).await;
    let sink = open(&format!("{}?compression=none&linger_ms=0", server.url()));
    let mut waiting: Vec<Outgoing> = Vec::new();
    let (mut next, mut refused, mut round) = (0, 0, 0);
    let deadline = Instant::now() + TIMEOUT * 20;
    while round < 10 || !waiting.is_empty() {
        assert!(Instant::now() < deadline, "{} still wait", waiting.len());
        for place in 0..if round < 10 { 100 } else { 0 } {
            let large = place == round * 10 + 5;
            let payload = if large { "9".repeat(4000) } else { next.to_string() };
            waiting.push(to(&topic, event(&format!("k{}", next % 4), payload)));
            next += 1;
        }
        round += 1;
        let outcomes = sink.publish(&waiting).await;
        let mut broken = HashSet::new();
        let mut left = Vec::new();
        for (outgoing, outcome) in waiting.into_iter().zip(outcomes) {
            let key = outgoing.event.event.key().to_owned();
            match outcome {
                Outcome::Delivered => assert!(!broken.contains(&key), "{key} has a gap"),
                Outcome::Failed(error) if error.kind == SinkErrorKind::TooLarge => {
                    assert_eq!(
                        outgoing.event.event.payload.len(),
                        4000,
                        "only the oversized events may fail"
                    );
                    refused += 1;
                    broken.insert(key);
                }
                // Timeouts are allowed: the machine may be busy.
                Outcome::Failed(error) if error.kind != SinkErrorKind::Timeout => panic!("{error:?}"),
                _ => {
                    broken.insert(key);
                    left.push(outgoing);
                }
            }
        }
        waiting = left;
    }
    assert_eq!(refused, 10);
    in_order(&read(&server.bootstrap(), &topic, false).await, next - refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_takes_little_at_once_gets_smaller_requests() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic_with(server, 1, &[("max.message.bytes", "20000")]).await;
    let sink = open(&format!("{}?compression=none", server.url()));
    let payload = |n: usize| format!("{n:0>300}");
    let mut waiting: Vec<Outgoing> = (0..300)
        .map(|n| to(&topic, event(&format!("k{}", n % 10), payload(n))))
        .collect();
    wait::until_ok(async || {
        let outcomes = sink.publish(&waiting).await;
        let left =
            std::mem::take(&mut waiting)
                .into_iter()
                .zip(outcomes)
                .filter_map(|(outgoing, outcome)| match outcome {
                    Outcome::Delivered => None,
                    Outcome::NotTried => Some(outgoing),
                    Outcome::Failed(error) => panic!("no event may fail here: {error}"),
                });
        waiting = left.collect();
        match waiting.len() {
            0 => Ok(()),
            left => Err(format!("{left} still wait")),
        }
    })
    .await;
    in_order(&read(&server.bootstrap(), &topic, false).await, 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_keeps_its_order_across_topics() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let (one, two) = (new_topic(server, 3).await, new_topic(server, 3).await);
    let sink = open(&server.url());
    let batch: Vec<Outgoing> = (0..40)
        .map(|n| to(if n % 3 == 0 { &one } else { &two }, event("k", n.to_string())))
        .collect();
    assert_eq!(sink.publish(&batch).await, vec![Outcome::Delivered; 40]);
    in_order(&read(&server.bootstrap(), &one, false).await, 14);
    in_order(&read(&server.bootstrap(), &two, false).await, 26);
}
