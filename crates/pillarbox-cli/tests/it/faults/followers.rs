//! The library's follower of the event log: beside relays that die and networks that fail, and before answers
//! that end it.

use std::time::Duration;

use pillarbox::{
    Event, Outbox,
    follow::{Follow, FollowError, Follower},
};
use pillarbox_testkit::{
    proxy::{Fault, Proxy},
    servers::free_port,
    wait,
};
use serde_json::json;
use sqlx::PgPool;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

use super::harness::{PATIENCE, STREAM, Scene};

const EVENTS: u64 = 400;
const PROJECTS: u64 = 2;

fn numbered(number: u64) -> Event {
    Event::to("orders.placed")
        .event_type("Placed")
        .aggregate("order", format!("key-{}", number % 7))
        .project_id(format!("p-{}", number % PROJECTS))
        .json(&json!({ "n": number }))
        .unwrap()
}

pub(super) async fn write(pool: &PgPool, numbers: std::ops::Range<u64>) {
    let outbox = Outbox::default();
    for number in numbers {
        let mut tx = pool.begin().await.unwrap();
        outbox.enqueue(&mut tx, &numbered(number)).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// Reads the numbers of this many events, and checks that each position is higher than the one before.
pub(super) async fn read(follower: &mut Follower, count: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut last = follower.position().unwrap_or_default();
    while (numbers.len() as u64) < count {
        let event = timeout(PATIENCE, follower.next())
            .await
            .expect("an event")
            .unwrap();
        assert!(event.position > last, "{} after {last}", event.position);
        last = event.position;
        let payload: serde_json::Value = serde_json::from_slice(&event.payload).unwrap();
        numbers.push(payload["n"].as_u64().unwrap());
    }
    numbers
}

/// In the order of each key, which is the order of the numbers with the same remainder.
pub(super) fn assert_each_once(mut numbers: Vec<u64>, expected: impl Iterator<Item = u64>) {
    for key in 0..7 {
        let of_key: Vec<u64> = numbers.iter().copied().filter(|n| n % 7 == key).collect();
        assert!(of_key.is_sorted(), "key {key}: {of_key:?}");
    }
    numbers.sort();
    assert_eq!(numbers, expected.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_each_event_once_while_relays_die_and_the_network_fails() {
    let started = Scene::start(|config| {
        config.routes = format!("[{{ topic: 'orders.>', sink: events, stream: {STREAM}, event_log: true }}]");
        config.lease_ms = 1_000;
    });
    let Some((scene, _nats)) = started.await else {
        return;
    };
    let [first_address, second_address] = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
    let first = scene.serving_at("first", &first_address).await;
    let second = scene.serving_at("second", &second_address).await;
    let proxy = Proxy::start(first_address.parse().unwrap()).await;
    let follow = |after| {
        Follow::new(format!("http://{}", proxy.address()))
            .relay(format!("http://{second_address}"))
            .topic("orders.>")
            .after(after)
    };

    let reading = async {
        let mut follower = follow(0).start().unwrap();
        read(&mut follower, EVENTS).await
    };
    let of_project = async {
        let mut follower = follow(0).project_id("p-1").start().unwrap();
        read(&mut follower, EVENTS / PROJECTS).await
    };
    let faults = async {
        for (from, fault) in [
            (0, Fault::Pass),
            (25, Fault::Reset),
            (50, Fault::Pass),
            (75, Fault::Refuse),
        ] {
            proxy.set(fault).await;
            write(&scene.pool, from..from + 25).await;
        }
        proxy.set(Fault::Pass).await;
        write(&scene.pool, 100..200).await;
        second.kill().await;
        write(&scene.pool, 200..300).await;
        first.kill().await;
        let first = scene.serving_at("first", &first_address).await;
        write(&scene.pool, 300..EVENTS).await;
        first
    };
    let (numbers, of_project, first) = tokio::join!(reading, of_project, faults);
    assert_each_once(numbers, 0..EVENTS);
    assert_each_once(of_project, (0..EVENTS).filter(|n| n % PROJECTS == 1));

    // Without a position, a follower knows where it starts before the first event. A dropped `next` loses nothing.
    let mut late = Follow::new(format!("http://{}", proxy.address()))
        .start()
        .unwrap();
    wait::until("the relay says where the follower starts", async || {
        let _ = timeout(Duration::from_millis(20), late.next()).await;
        late.position().is_some()
    })
    .await;
    proxy.set(Fault::Reset).await;
    write(&scene.pool, EVENTS..EVENTS + 10).await;
    proxy.set(Fault::Pass).await;
    assert_each_once(read(&mut late, 10).await, EVENTS..EVENTS + 10);
    first.stop().await;
}

/// A server that sends this answer to every request. It stands for relays in states that are hard to cause.
async fn answering(answer: &'static str) -> String {
    answering_in_turn(vec![answer]).await
}

/// The last answer is repeated.
async fn answering_in_turn(answers: Vec<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let last = answers[answers.len() - 1];
        let mut answers = answers.into_iter().chain(std::iter::repeat(last));
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4_096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answers.next().unwrap().as_bytes()).await;
        }
    });
    format!("http://{address}")
}

const HEARTBEAT: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"heartbeat\":true,\"position\":5}\n";

#[tokio::test]
async fn a_follower_says_why_it_can_not_go_on() {
    let answer = |head: &str, body: &str| -> &'static str {
        format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n{body}").leak()
    };
    let error = async |answer| {
        let mut follower = Follow::new(answering(answer).await)
            .after(5)
            .token("geheim")
            .event_bytes_max(100)
            .start()
            .unwrap();
        let error = timeout(PATIENCE, follower.next())
            .await
            .expect("an answer")
            .unwrap_err();
        let text = error.to_string();
        assert!(!text.contains("geheim"), "{text}");
        (error, text)
    };
    let (gone, text) = error(answer("410 Gone", r#"{"error":"x","expired":9}"#)).await;
    assert!(matches!(gone, FollowError::Expired { position: 5 }), "{text}");
    let (beyond, text) = error(answer("409 Conflict", r#"{"error":"x","last":3}"#)).await;
    assert!(matches!(beyond, FollowError::Beyond { position: 5 }), "{text}");
    let (replaced, text) = error(answer("200 OK", "{\"end\":\"replaced\",\"position\":5}\n")).await;
    assert!(matches!(replaced, FollowError::Beyond { position: 5 }), "{text}");
    let (refused, text) = error(answer(
        "401 Unauthorized",
        r#"{"error":"this token is not known"}"#,
    ))
    .await;
    assert!(
        matches!(refused, FollowError::Refused { status: 401, .. }),
        "{text}"
    );
    assert_eq!(text, "the relay answered 401: this token is not known");
    let (_, text) = error(answer("302 Found", "")).await;
    assert!(text.contains("302") && text.contains("not a relay"), "{text}");
    let (strange, text) = error(answer("200 OK", "<html>\n")).await;
    assert!(matches!(strange, FollowError::Unreadable(_)), "{text}");
    let (large, text) = error(answer("200 OK", &"x".repeat(101))).await;
    assert!(
        matches!(
            large,
            FollowError::TooLarge {
                position: 5,
                bytes_max: 100
            }
        ),
        "{text}"
    );

    for wrong in [
        "127.0.0.1:7420",
        "ftp://a",
        "http://ops:geheim@a",
        "http://a?after=1",
    ] {
        let error = Follow::new(wrong).start().unwrap_err().to_string();
        assert!(error.contains("https://") && !error.contains("geheim"), "{error}");
    }
}

/// The log grows past the position meanwhile, so a relay would accept it, and events would be left out.
#[tokio::test]
async fn a_follower_of_a_lost_position_never_asks_again() {
    for (end, expired) in [("replaced", false), ("expired", true)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = format!("http://{}", listener.local_addr().unwrap());
        let answers = tokio::spawn(async move {
            let first = format!("{{\"end\":\"{end}\",\"position\":5}}\n");
            for body in [first.as_str(), "{\"heartbeat\":true,\"position\":900}\n"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4_096];
                let _ = stream.read(&mut request).await;
                let answer = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let mut follower = Follow::new(relay).after(5).start().unwrap();
        for _ in 0..3 {
            let error = timeout(PATIENCE, follower.next()).await.unwrap().unwrap_err();
            assert_eq!(matches!(error, FollowError::Expired { position: 5 }), expired);
            assert_eq!(matches!(error, FollowError::Beyond { position: 5 }), !expired);
        }
        assert_eq!(follower.position(), Some(5));
        assert!(!answers.is_finished(), "it asked once");
        answers.abort();
    }
}

#[tokio::test]
async fn a_follower_asks_the_next_relay_if_one_can_not_answer() {
    for away in [
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\r\n",
        "no HTTP",
        "",
    ] {
        let mut follower = Follow::new(answering(away).await)
            .relay(answering(HEARTBEAT).await)
            .start()
            .unwrap();
        wait::until("the second relay is asked", async || {
            let _ = timeout(Duration::from_millis(20), follower.next()).await;
            follower.position() == Some(5)
        })
        .await;
    }
}

#[tokio::test]
async fn a_follower_whose_token_expires_says_that_it_is_refused() {
    let ended = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"end\":\"token_expired\",\"position\":5}\n";
    let refused = "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\n\r\n{\"error\":\"it has expired\"}";
    let relay = answering_in_turn(vec![HEARTBEAT, ended, refused]).await;
    let mut follower = Follow::new(relay).after(3).token("geheim").start().unwrap();
    let error = timeout(PATIENCE, follower.next())
        .await
        .expect("an answer")
        .unwrap_err();
    assert!(
        matches!(error, FollowError::Refused { status: 401, .. }),
        "{error}"
    );
    assert_eq!(follower.position(), Some(5), "where the next one continues");
    // The same relay is asked first: another one would not know the token either.
    let relay = answering_in_turn(vec![ended, refused]).await;
    let other = answering("HTTP/1.1 403 Forbidden\r\nconnection: close\r\n\r\n").await;
    let mut follower = Follow::new(relay).relay(other).after(3).start().unwrap();
    let error = timeout(PATIENCE, follower.next())
        .await
        .expect("an answer")
        .unwrap_err();
    assert!(
        matches!(error, FollowError::Refused { status: 401, .. }),
        "{error}"
    );
}
