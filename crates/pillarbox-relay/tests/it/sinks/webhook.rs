//! Webhooks: the contract, what a request contains, what each answer means, and a relay on a receiver that fails.

mod pauses;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use pillarbox::{Event, Limits};
use pillarbox_relay::{
    Relay, Sink,
    connect::{self, SinkOptions},
    envelope::{Envelope, Mode},
    http_client::secret_headers,
    retry::RetryPolicy,
    signature::Secret,
    sink::{Outcome, Outgoing, SinkErrorKind as Kind, webhook::WebhookOptions},
    tls::TlsFiles,
};
use pillarbox_testkit::{
    authority::Authority,
    contract::sink::{Arrived, SinkHarness, event, outgoing},
    sink_contract,
    tls_server::TlsServer,
    wait::until,
    webhooks::{Receiver, Reply, Request},
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const TOKEN: &str = "geheim-token";

fn options(url: String) -> SinkOptions {
    SinkOptions {
        publish_timeout: Duration::from_secs(2),
        webhook: WebhookOptions {
            secrets: vec![Secret::parse(SECRET).unwrap()],
            ..WebhookOptions::default()
        },
        ..SinkOptions::new(url)
    }
}

fn sink(options: &SinkOptions) -> Arc<dyn Sink> {
    connect::sink(options).unwrap().sink
}

fn url(receiver: &Receiver) -> String {
    format!("http://127.0.0.1:{}/{TOKEN}?of=shop", receiver.port())
}

fn header(request: &Request, name: &str) -> String {
    let value = request.headers.get(name).map_or("", String::as_str);
    percent_decode_str(value).decode_utf8().unwrap().into_owned()
}

fn arrived(request: &Request) -> Arrived {
    let field = |name: &str| header(request, &format!("pillarbox-{name}"));
    Arrived {
        id: field("id").parse().unwrap(),
        key: field("key"),
        event_type: field("event-type"),
        aggregate: (field("aggregate-type"), field("aggregate-id")),
        aggregate_version: field("aggregate-version").parse().ok(),
        headers: request
            .headers
            .keys()
            .map(|name| (name.clone(), header(request, name)))
            .collect(),
        payload: Bytes::from(request.body.clone()),
    }
}

struct Harness {
    receiver: Option<Receiver>,
    /// What arrived before it stopped.
    before: Vec<Request>,
    port: u16,
    sink: Arc<dyn Sink>,
}

#[async_trait]
impl SinkHarness for Harness {
    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn arrived(&mut self) -> Option<Vec<Arrived>> {
        let now = self.receiver.as_ref().unwrap().requests();
        Some(self.before.iter().chain(&now).map(arrived).collect())
    }

    fn invalid(&self) -> Option<Event> {
        Some(event("bad", "1").header("größe", "x"))
    }

    async fn stop(&mut self) -> bool {
        self.before = self.receiver.take().unwrap().requests();
        true
    }

    async fn start_again(&mut self) {
        self.receiver = Some(Receiver::start_at(self.port));
    }
}

async fn harness() -> Option<Harness> {
    let receiver = Receiver::start();
    Some(Harness {
        before: Vec::new(),
        port: receiver.port(),
        sink: sink(&options(url(&receiver))),
        receiver: Some(receiver),
    })
}

sink_contract!(harness);

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_signed_and_says_everything_about_the_event() {
    let receiver = Receiver::start();
    let mut options = options(url(&receiver));
    let token = ("authorization".to_owned(), "Bearer geheim".to_owned());
    options.webhook.headers = secret_headers([(&token.0, &token.1)]).unwrap();
    let event = event("zwölf 50%", r#"{"name": "Zoë"}"#)
        .header("baggage", "a=b%20c")
        .header("tracestate", "a=1, b=2");
    let sent = outgoing(event.clone());
    assert_eq!(sink(&options).publish(&[sent]).await, [Outcome::Delivered]);
    let request = &receiver.requests()[0];
    assert_eq!(request.path, format!("/{TOKEN}?of=shop"));
    assert_eq!(request.body, r#"{"name": "Zoë"}"#);
    assert_eq!(request.id(), event.id.to_string());
    for (name, value) in [
        ("authorization", "Bearer geheim"),
        ("content-type", "application/json"),
        ("pillarbox-topic", "contract.event"),
        ("pillarbox-key", "zw%C3%B6lf%2050%25"),
        ("baggage", "a=b%20c"),
        ("tracestate", "a=1, b=2"),
    ] {
        assert_eq!(
            request.headers.get(name).map(String::as_str),
            Some(value),
            "{name}"
        );
    }
    if let Some(verified) = request.verified(SECRET) {
        assert!(verified);
        let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        assert_eq!(request.verified(other), Some(false));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_can_not_change_the_request() {
    let receiver = Receiver::start();
    let mut options = options(url(&receiver));
    let team = ("x-team".to_owned(), "shop".to_owned());
    options.webhook.headers = secret_headers([(&team.0, &team.1)]).unwrap();
    let given = [
        ("Host", "elsewhere"),
        ("Content-Length", "1"),
        ("transfer-encoding", "chunked"),
        ("Authorization", "Bearer of-the-producer"),
        ("webhook-id", "another"),
        ("webhook-signature", "v1,AAAA"),
        ("X-Team", "other"),
        ("Pillarbox-Id", "another"),
        ("line", "a\r\nx-injected: yes"),
    ];
    let event = given.iter().fold(event("a", "1"), |event, (name, value)| {
        event.header(*name, *value)
    });
    let id = event.id.to_string();
    assert_eq!(
        sink(&options).publish(&[outgoing(event)]).await,
        [Outcome::Delivered]
    );
    let request = &receiver.requests()[0];
    assert_eq!((request.id(), &*request.headers["pillarbox-id"]), (&*id, &*id));
    assert_eq!(request.headers["host"], format!("127.0.0.1:{}", receiver.port()));
    assert_eq!(request.headers["x-team"], "shop");
    assert!(!request.headers.contains_key("authorization") && !request.headers.contains_key("x-injected"));
    for (name, value) in given {
        let name = match name {
            "line" => "line".to_owned(),
            name => format!("x-{}", name.to_ascii_lowercase()),
        };
        assert_eq!(header(request, &name), value, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_envelope_is_sent() {
    let receiver = Receiver::start();
    let cloud_events = |mode| Envelope::CloudEvents { mode, source: None };
    let envelopes = [
        cloud_events(Mode::Binary),
        cloud_events(Mode::Structured),
        Envelope::Pillarbox,
        Envelope::Debezium,
    ];
    let event = event("Zoë 1", r#"{"total": 1.50}"#);
    let id = event.id.to_string();
    let sink = sink(&options(url(&receiver)));
    for envelope in envelopes {
        let sent = Outgoing {
            envelope,
            ..outgoing(event.clone())
        };
        assert_eq!(sink.publish(&[sent]).await, [Outcome::Delivered]);
    }
    let requests = receiver.requests();
    let [binary, structured, whole, debezium] = &requests[..] else {
        panic!("{requests:?}")
    };
    assert_eq!(binary.headers["ce-id"], id);
    assert_eq!(binary.headers["ce-subject"], "Zo%C3%AB%201");
    assert_eq!(binary.body, r#"{"total": 1.50}"#);
    assert_eq!(
        structured.headers["content-type"],
        "application/cloudevents+json; charset=UTF-8"
    );
    assert_eq!(structured.json()["data"]["total"], 1.5);
    assert_eq!(whole.json()["topic"], "contract.event");
    assert_eq!(
        (&*debezium.headers["id"], &*debezium.headers["eventtype"]),
        (&*id, "Happened")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_answer_is_understood_and_shows_nothing_of_the_address() {
    let receiver = Receiver::start();
    let sink = sink(&SinkOptions {
        publish_timeout: Duration::from_millis(500),
        ..options(url(&receiver))
    });
    for (reply, expected, in_doubt) in [
        (Reply::Status(500), Kind::Unclear, false),
        (Reply::Status(404), Kind::Unclear, false),
        (Reply::Status(308), Kind::Unclear, false),
        (Reply::Status(400), Kind::Busy, false),
        (Reply::Status(422), Kind::Refused, false),
        (Reply::Status(413), Kind::TooLarge, false),
        (Reply::Status(429), Kind::Full, false),
        (Reply::Status(503), Kind::Unavailable, false),
        (Reply::Break, Kind::Unclear, true),
        (Reply::Late(Duration::from_secs(1), 204), Kind::Timeout, true),
    ] {
        receiver.answer_by(move |_| reply);
        let outcomes = sink.publish(&[outgoing(event("a", "1"))]).await;
        let [Outcome::Failed(error)] = &outcomes[..] else {
            panic!("{reply:?}: {outcomes:?}")
        };
        assert_eq!(
            (error.kind, error.in_doubt),
            (expected, in_doubt),
            "{reply:?}: {error}"
        );
        assert!(!error.message.contains(TOKEN), "{error}");
    }
    let nobody = Receiver::start().port();
    let sink = self::sink(&options(format!("http://127.0.0.1:{nobody}/{TOKEN}")));
    let error = sink.check().await.unwrap_err();
    assert_eq!(error.kind, Kind::Unreachable);
    assert!(
        error.message.contains("refused") && !error.message.contains(TOKEN),
        "{error}"
    );
}

/// The receiver is slower than the timeout allows for all of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_receiver_gets_only_so_many_requests_and_the_rest_is_not_tried() {
    let receiver = Receiver::start();
    receiver.answer_by(|_| Reply::Late(Duration::from_millis(200), 204));
    let mut options = options(url(&receiver));
    options.publish_timeout = Duration::from_millis(500);
    options.webhook.requests_max = 3;
    let batch: Vec<Outgoing> = (0..60).map(|n| outgoing(event(&n.to_string(), "1"))).collect();
    let outcomes = sink(&options).publish(&batch).await;
    let count = |wanted: &Outcome| outcomes.iter().filter(|outcome| *outcome == wanted).count();
    let (delivered, not_tried) = (count(&Outcome::Delivered), count(&Outcome::NotTried));
    assert_eq!(delivered + not_tried, 60, "{outcomes:?}");
    assert!(delivered >= 3 && not_tried > 0, "{delivered} delivered");
    assert_eq!(receiver.waiting_max(), 3);
    assert_eq!(
        receiver.requests().len(),
        delivered,
        "no event is sent and then given up"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_receiver_is_verified_and_gets_our_certificate() {
    let receiver = Receiver::start();
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ours");
    let stranger = Authority::new(folder.path(), "stranger");
    let (certificate, key) = authority.certify("127.0.0.1");
    let tls = TlsServer::new(&certificate, &key, Some(&authority.ca));
    let port = tls.in_front_of(receiver.port()).await.unwrap();
    let ours = authority.certify("app");
    let checked = async |ca: &Authority, identity| {
        let mut options = options(format!("https://127.0.0.1:{port}/"));
        options.webhook.tls = TlsFiles {
            ca: Some(ca.ca.clone()),
            identity,
        };
        let sink = sink(&options);
        sink.check().await?;
        assert_eq!(
            sink.publish(&[outgoing(event("a", "1"))]).await,
            [Outcome::Delivered]
        );
        Ok::<_, pillarbox_relay::sink::SinkError>(())
    };
    checked(&authority, Some(ours.clone())).await.unwrap();
    for (ca, identity, why) in [
        (&stranger, Some(ours), "UnknownIssuer"),
        (&authority, None, "ertificate"),
    ] {
        let error = checked(ca, identity).await.unwrap_err();
        assert_eq!(error.kind, Kind::Unreachable, "{error}");
        for part in ["no TLS connection", "webhook.ca", "webhook.cert", why] {
            assert!(error.message.contains(part), "`{part}` is missing: {error}");
        }
    }
}

/// First the receiver fails at everything. After that it fails at one event only.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_charges_no_event_and_a_poisonous_event_dies_alone() {
    let receiver = Receiver::start();
    receiver.answer(500);
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", folder.path().join("outbox.db").display());
    let mut relay = Relay::open(&database, &url(&receiver)).unwrap();
    relay.options.engine.retry = RetryPolicy {
        base_delay: Duration::from_millis(20),
        attempts_max: 3,
        ..RetryPolicy::default()
    };
    let admin = relay.store.admin.clone();
    admin.migrate().await.unwrap();
    let events: Vec<Event> = (0..200)
        .map(|n| event(&format!("key-{}", n % 20), n.to_string()))
        .collect();
    admin.enqueue(&Limits::default(), &events).await.unwrap();
    let handle = relay.start();
    until("several trials", async || receiver.requests().len() > 25).await;
    assert_eq!(
        handle.progress.report().failed,
        0,
        "an outage must charge no event"
    );

    let poison = "100";
    receiver.answer_by(move |request| match request.body == poison {
        true => Reply::Status(500),
        false => Reply::Status(204),
    });
    // Other events show that the receiver works, and that the poisonous one is at fault.
    until("the poisonous event is dead", async || {
        let others: Vec<Event> = (0..10).map(|n| event(&format!("other-{n}"), "1000")).collect();
        admin.enqueue(&Limits::default(), &others).await.unwrap();
        admin.status().await.unwrap().dead > 0
    })
    .await;
    until("nothing waits", async || {
        let status = admin.status().await.unwrap();
        status.pending + status.failed + status.held == 0
    })
    .await;
    assert_eq!(admin.status().await.unwrap().dead, 1);
    handle.stop().await.unwrap();

    let mut accepted: HashMap<String, Vec<u64>> = HashMap::new();
    let mut attempts: BTreeMap<String, usize> = BTreeMap::new();
    for request in receiver.requests() {
        let number = request.body.parse().unwrap();
        *attempts.entry(request.body.clone()).or_default() += 1;
        accepted
            .entry(header(&request, "pillarbox-key"))
            .or_default()
            .push(number);
    }
    for (key, mut numbers) in accepted {
        numbers.dedup();
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
    }
    assert!(attempts[poison] >= 3, "{}", attempts[poison]);
}
