use futures::StreamExt;
use pillarbox::Event;
use pillarbox_relay::event_log::Hub;
use pillarbox_testkit::memory::MemoryLog;
use serde_json::Value;

use super::*;

fn with_id(id: &str) -> HeaderMap {
    [(LAST_EVENT_ID.parse().unwrap(), id.parse().unwrap())]
        .into_iter()
        .collect::<HeaderMap>()
}

#[test]
fn a_reconnecting_browser_continues_after_its_last_event() {
    let none = HeaderMap::new();
    assert_eq!(resume(&none, None).unwrap(), None);
    assert_eq!(resume(&none, Some(3)).unwrap(), Some(3));
    assert_eq!(resume(&with_id("7"), Some(3)).unwrap(), Some(7));
    assert_eq!(resume(&with_id(""), Some(3)).unwrap(), Some(3));
    for wrong in ["x", "-1", "99999999999999999999"] {
        assert!(resume(&with_id(wrong), None).is_err(), "{wrong}");
    }
    assert!(resume(&none, Some(-1)).is_err());
}

fn event(n: usize, bytes: usize) -> Event {
    Event::to("t")
        .event_type("T")
        .aggregate("a", n.to_string())
        .payload(format!("\"{}\"", "x".repeat(bytes)))
}

fn log(count: usize, bytes: usize) -> Arc<MemoryLog> {
    let log = Arc::new(MemoryLog::default());
    log.append((1..=count).map(|n| event(n, bytes)));
    log
}

async fn following(hub: &Hub, format: Format) -> Following {
    let subscription = hub.subscribe(Some(0), LogFilter::default()).await.unwrap();
    Following {
        position: subscription.position(),
        subscription,
        format,
        closing: CancellationToken::new(),
        token_expires: None,
        step: Step::Events,
        parts: VecDeque::new(),
        page_since: Instant::now(),
        complete: true,
        read_by: ReadBy::default(),
        _place: None,
    }
}

async fn next(following: Following) -> (Bytes, Following) {
    let (Ok(part), following) = following.next().await.unwrap();
    (part, following)
}

fn json_lines(text: &[u8]) -> Vec<Value> {
    assert!(text.ends_with(b"\n"), "whole lines");
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn after_15_seconds_without_an_event_a_client_gets_its_position() {
    let log = log(1, 10);
    let hub = Hub::start(log.clone());
    let (first, client) = next(following(&hub, Format::Ndjson).await).await;
    assert_eq!(json_lines(&first)[0]["position"], 1);
    let since = Instant::now();
    let (heartbeat, client) = next(client).await;
    assert_eq!(since.elapsed().as_secs(), 15);
    assert_eq!(
        json_lines(&heartbeat),
        [json!({ "heartbeat": true, "position": 1 })]
    );
    // The log goes on with what the client does not want.
    log.pass_over(2, 40);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (heartbeat, _) = next(client).await;
    assert_eq!(
        json_lines(&heartbeat),
        [json!({ "heartbeat": true, "position": 40 })]
    );
}

/// The page took too long: what was not sent yet is left to the client's next request.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_a_page_too_slowly_is_ended_between_two_events() {
    for format in [Format::Ndjson, Format::Sse] {
        let hub = Hub::start(log(20, 10_000));
        let client = following(&hub, format).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (mut text, mut client) = next(client).await;
        while !client.complete {
            let (part, rest) = next(client).await;
            text = [&text[..], &part[..]].concat().into();
            client = rest;
        }
        let position = client.position;
        assert!((1..20).contains(&position), "{position}");
        let events = String::from_utf8_lossy(&text).matches("\"seq\":").count();
        assert_eq!(events as Position, position, "as many as were sent");

        tokio::time::sleep(PAGE_TIME_MAX + Duration::from_secs(1)).await;
        let (end, client) = next(client).await;
        let end = String::from_utf8(end.to_vec()).unwrap();
        assert!(end.contains("\"end\":\"too_slow\""), "{end}");
        assert!(end.contains(&format!("\"position\":{position}")), "{end}");
        assert!(client.next().await.is_none(), "it was the last line");
    }
}

/// Two thousand clients of one large event must not have two thousand copies of it.
#[tokio::test(start_paused = true)]
async fn clients_share_a_large_event() {
    for format in [Format::Ndjson, Format::Sse] {
        let hub = Hub::start(log(1, 500_000));
        let mut bodies = Vec::new();
        for _ in 0..2 {
            let client = following(&hub, format).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let parts = futures::stream::unfold(client, Following::next).take_while(|part| {
                let heartbeat = part.as_ref().unwrap().windows(9).any(|w| w == b"heartbeat");
                std::future::ready(!heartbeat)
            });
            let parts: Vec<Bytes> = parts.map(Result::unwrap).collect().await;
            bodies.push(parts);
        }
        let large = |parts: &[Bytes]| {
            let part = parts.iter().find(|part| part.len() > 500_000).unwrap();
            part.as_ptr()
        };
        assert_eq!(large(&bodies[0]), large(&bodies[1]), "{format:?}: one copy");
        let text = String::from_utf8(bodies[0].concat()).unwrap();
        let line = match format {
            Format::Ndjson => text.strip_suffix('\n').unwrap(),
            Format::Sse => text
                .strip_prefix("id: 1\ndata: ")
                .and_then(|text| text.strip_suffix("\n\n"))
                .unwrap(),
        };
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["position"], 1);
    }
}

/// However lines are cut into parts, they are the same, and a part names the last event that is complete with it.
#[tokio::test(start_paused = true)]
async fn parts_are_the_lines() {
    for bytes in [10, 3_000, 5_000] {
        let hub = Hub::start(log(200, bytes));
        for format in [Format::Ndjson, Format::Sse] {
            let mut subscription = hub.subscribe(Some(0), LogFilter::default()).await.unwrap();
            let mut seen = 0;
            while seen < 200 {
                let Next::Lines(lines) = subscription.next().await else {
                    panic!("it ended");
                };
                let mut expected = Vec::new();
                for line in &lines {
                    if format == Format::Sse {
                        expected.extend_from_slice(format!("id: {}\ndata: ", line.position).as_bytes());
                    }
                    expected.extend_from_slice(&line.text);
                    if format == Format::Sse {
                        expected.push(b'\n');
                    }
                }
                let parts = format.parts(&lines);
                let mut text = Vec::new();
                for part in &parts {
                    text.extend_from_slice(&part.bytes);
                    let complete = text.ends_with(if format == Format::Sse {
                        b"\n\n"
                    } else {
                        b"\n" as &[u8]
                    });
                    assert_eq!(complete, part.position.is_some());
                    seen = part.position.unwrap_or(seen);
                }
                assert!(text == expected, "{format:?}, {bytes} bytes");
            }
        }
    }
}

/// The relay stops: the client has what was sent, and no more.
#[tokio::test(start_paused = true)]
async fn the_last_line_has_the_position_of_what_was_sent() {
    let log = log(100, 300_000);
    let hub = Hub::start(log.clone());
    let client = following(&hub, Format::Ndjson).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (first, client) = next(client).await;
    assert_eq!(json_lines(&first)[0]["position"], 1);
    // The next page is being read.
    log.reading.set(false);
    client.closing.cancel();
    let (end, _) = next(client).await;
    let end = &json_lines(&end)[0];
    assert_eq!((&end["end"], &end["position"]), (&json!("closed"), &json!(1)));
}
