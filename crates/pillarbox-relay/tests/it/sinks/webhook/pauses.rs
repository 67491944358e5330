//! Webhooks whose receiver is slow, limits requests, or breaks them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use pillarbox::{Event, Limits};
use pillarbox_relay::{
    Handle, Relay,
    retry::RetryPolicy,
    sink::{Outcome, Outgoing, SinkErrorKind as Kind},
    trace::{self, Traces},
};
use pillarbox_testkit::{
    collector_stub::{CollectorStub, traceparent},
    contract::sink::{event, outgoing},
    wait::until,
    webhooks::{Receiver, Reply},
};
use tempfile::TempDir;

use super::{header, options, sink, url};

/// A relay on a SQLite file that sends events to a receiver.
struct Scene {
    relay: Relay,
    _folder: TempDir,
}

impl Scene {
    async fn new(receiver: &Receiver, publish_timeout: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = format!("sqlite:{}", folder.path().join("outbox.db").display());
        let mut options = options(url(receiver));
        options.publish_timeout = publish_timeout;
        let mut relay = Relay::open(&database, &options.url).unwrap();
        let name = relay.sinks.keys().next().unwrap().clone();
        relay.sinks.insert(name, sink(&options));
        relay.options.engine.retry = RetryPolicy {
            base_delay: Duration::from_millis(20),
            for_ever: true,
            ..RetryPolicy::default()
        };
        relay.store.admin.migrate().await.unwrap();
        Self {
            relay,
            _folder: folder,
        }
    }

    /// Starts the relay with these events.
    async fn start(self, events: &[Event]) -> (Handle, TempDir) {
        let admin = self.relay.store.admin.clone();
        admin.enqueue(&Limits::default(), events).await.unwrap();
        (self.relay.start(), self._folder)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let (receiver, target) = (Receiver::start(), Receiver::start());
    let port = target.port();
    receiver.answer_by(move |_| Reply::Redirect(port));
    let outcomes = sink(&options(url(&receiver)))
        .publish(&[outgoing(event("a", "1"))])
        .await;
    assert!(
        matches!(&outcomes[..], [Outcome::Failed(error)] if error.message.contains("redirects are not followed")),
        "{outcomes:?}"
    );
    assert_eq!((receiver.requests().len(), target.requests().len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_an_end_is_not_read_to_its_end() {
    let receiver = Receiver::start();
    let sink = sink(&options(url(&receiver)));
    for (status, expected) in [(200, None), (422, Some(Kind::Refused))] {
        receiver.answer_by(move |_| Reply::Endless(status));
        let began = Instant::now();
        let outcomes = sink.publish(&[outgoing(event("a", "1"))]).await;
        let kind = match &outcomes[..] {
            [Outcome::Failed(error)] => Some(error.kind),
            outcomes => {
                assert_eq!(outcomes, [Outcome::Delivered]);
                None
            }
        };
        assert_eq!(kind, expected);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
}

/// The events of a key follow each other, so there is always a free permit.
#[tokio::test(flavor = "multi_thread")]
async fn no_request_begins_after_the_timeout() {
    let receiver = Receiver::start();
    receiver.answer_by(|_| Reply::Late(Duration::from_millis(200), 204));
    let mut options = options(url(&receiver));
    options.publish_timeout = Duration::from_millis(500);
    let batch: Vec<Outgoing> = (0..10).map(|n| outgoing(event("a", n.to_string()))).collect();
    let began = Instant::now();
    let outcomes = sink(&options).publish(&batch).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    let delivered = outcomes
        .iter()
        .take_while(|outcome| **outcome == Outcome::Delivered)
        .count();
    assert!((1..=3).contains(&delivered), "{outcomes:?}");
    let rest = &outcomes[delivered..];
    assert!(
        rest.iter().all(|outcome| *outcome == Outcome::NotTried),
        "{outcomes:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_slow_answer_holds_back_the_results_of_few_others() {
    let receiver = Receiver::start();
    let slow = Duration::from_secs(6);
    receiver.answer_by(move |request| match &*request.body {
        "0" => Reply::Late(slow, 204),
        _ => Reply::Status(204),
    });
    let scene = Scene::new(&receiver, 2 * slow).await;
    let admin = scene.relay.store.admin.clone();
    let events: Vec<Event> = (0..200).map(|n| event(&n.to_string(), n.to_string())).collect();
    let began = Instant::now();
    let (relay, _folder) = scene.start(&events).await;
    until("the others are settled", async || {
        admin.status().await.unwrap().pending <= 16
    })
    .await;
    assert!(began.elapsed() < slow, "{:?}", began.elapsed());
    until("all are settled", async || {
        admin.status().await.unwrap().pending == 0
    })
    .await;
    relay.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_limits_requests_is_asked_again_when_it_says() {
    let receiver = Receiver::start();
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let seen = times.clone();
    receiver.answer_by(move |request| {
        if request.body.is_empty() {
            return Reply::Status(204);
        }
        let mut seen = seen.lock().unwrap();
        seen.push(Instant::now());
        match seen.len() {
            1..=2 => Reply::RetryAfter(1, 429),
            3 => Reply::RetryAfter(1, 503),
            _ => Reply::Status(204),
        }
    });
    let scene = Scene::new(&receiver, Duration::from_secs(2)).await;
    let admin = scene.relay.store.admin.clone();
    let (relay, _folder) = scene.start(&[event("a", "1")]).await;
    until("it is delivered", async || relay.progress.report().published == 1).await;
    let times = times.lock().unwrap().clone();
    assert_eq!(times.len(), 4);
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_secs(1), "{times:?}");
    }
    assert_eq!(
        relay.progress.report().failed,
        0,
        "an outage must charge no event"
    );
    relay.stop().await.unwrap();
    assert_eq!(admin.status().await.unwrap().dead, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_wants_no_more_events_is_asked_rarely() {
    let receiver = Receiver::start();
    receiver.answer(410);
    let scene = Scene::new(&receiver, Duration::from_secs(2)).await;
    let (relay, _folder) = scene.start(&[event("a", "1")]).await;
    until("it is paused", async || {
        !relay.progress.report().paused.is_empty()
    })
    .await;
    // By now other pauses have had four trials.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(receiver.requests().len(), 1);
    let paused = relay.progress.report().paused;
    assert!(
        paused
            .values()
            .all(|outage| outage.why.contains("wants no more events")),
        "{paused:?}"
    );
    relay.stop().await.unwrap();
}

/// Each request is answered, broken, refused for now, or answered too late.
#[tokio::test(flavor = "multi_thread")]
async fn each_key_is_in_order_across_timeouts_and_broken_connections() {
    let receiver = Receiver::start();
    let count = Mutex::new(0_u32);
    receiver.answer_by(move |request| {
        if request.body.is_empty() {
            return Reply::Status(204);
        }
        let mut count = count.lock().unwrap();
        *count += 1;
        match *count % 11 {
            2 => Reply::Break,
            4 => Reply::Status(400),
            6 => Reply::Late(Duration::from_millis(600), 204),
            8 => Reply::Status(503),
            _ => Reply::Status(204),
        }
    });
    let scene = Scene::new(&receiver, Duration::from_millis(300)).await;
    let events: Vec<Event> = (0..80)
        .map(|n| event(&format!("key-{}", n % 8), n.to_string()))
        .collect();
    let (relay, _folder) = scene.start(&events).await;
    until("all are delivered", async || {
        relay.progress.report().published == 80
    })
    .await;
    relay.stop().await.unwrap();
    let mut by_key: HashMap<String, Vec<u64>> = HashMap::new();
    for request in receiver.requests() {
        let numbers = by_key.entry(header(&request, "pillarbox-key")).or_default();
        numbers.push(request.body.parse().unwrap());
    }
    assert_eq!(by_key.len(), 8);
    for (key, mut numbers) in by_key {
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
        numbers.dedup();
        assert_eq!(numbers.len(), 10, "{key}: {numbers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_names_its_span_as_the_parent() {
    let (receiver, collector) = (Receiver::start(), CollectorStub::start().await.unwrap());
    let mut scene = Scene::new(&receiver, Duration::from_secs(2)).await;
    let options = trace::Options::new(&collector.url(), []).unwrap();
    scene.relay.options.engine.traces = Some(Arc::new(Traces::new(options).unwrap()));
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let (relay, _folder) = scene
        .start(&[event("a", "1").header("traceparent", parent)])
        .await;
    let spans = collector.until(3).await;
    relay.stop().await.unwrap();
    let publish = spans
        .iter()
        .find(|span| span.name.starts_with("publish "))
        .unwrap();
    assert_eq!(
        receiver.requests()[0].headers["traceparent"],
        traceparent(publish)
    );
}
