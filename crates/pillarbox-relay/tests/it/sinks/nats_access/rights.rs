//! What a user may publish and subscribe to.

use std::time::{Duration, Instant};

use pillarbox_relay::{
    Sink,
    sink::{Outcome, Outgoing, SinkErrorKind, Streams},
};
use pillarbox_testkit::{
    contract::sink::{Arrived, event, outgoing},
    servers::{Nats, NatsOptions},
    wait,
};

use super::{
    super::nats::{failure, open, spec, stored_for},
    address,
};

/// Starts a server with an administrator and a user `app` with these rights. Its stream S accepts
/// `contract.>`.
async fn server(rights: &str) -> Option<Nats> {
    let server = Nats::start_with(NatsOptions::configured(users(rights))).await?;
    let admin = open(&address(&server, "admin:x"), vec![spec("S", "contract.>")]);
    admin.apply_streams().await.unwrap();
    Some(server)
}

fn users(rights: &str) -> String {
    format!(
        "authorization {{ users: [
            {{ user: admin, password: x }},
            {{ user: app, password: x, permissions: {{ {rights} }} }}
        ] }}"
    )
}

async fn stored(server: &Nats) -> Vec<Arrived> {
    let admin = async_nats::ConnectOptions::with_user_and_password("admin".into(), "x".into());
    stored_for(admin.connect(server.url()).await.unwrap(), "S").await
}

fn to(topic: &str, key: &str) -> Outgoing {
    outgoing(event(key, "1").topic(topic))
}

/// The rights that the documentation lists for a relay.
const DOCUMENTED: &str = r#"
    publish: ["contract.>", "$JS.API.STREAM.INFO.*"], subscribe: ["_INBOX.>"]"#;

#[tokio::test]
async fn the_documented_rights_are_enough_to_check_and_to_publish() {
    let Some(server) = server(DOCUMENTED).await else {
        return;
    };
    let sink = open(&address(&server, "app:x"), vec![spec("S", "contract.>")]);
    sink.check().await.unwrap();
    let batch: Vec<_> = (0..50).map(|n| to("contract.event", &n.to_string())).collect();
    assert_eq!(sink.publish(&batch).await, vec![Outcome::Delivered; 50]);
    assert_eq!(stored(&server).await.len(), 50);

    let missing = open(&address(&server, "app:x"), vec![spec("NEW", "new.>")]);
    let error = missing.apply_streams().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured);
    assert!(error.message.contains("$JS.API.STREAM.CREATE.NEW"), "{error}");
}

#[tokio::test]
async fn a_subject_one_may_not_publish_to_fails_only_its_own_events_and_can_still_be_granted() {
    let rights = r#"publish: { deny: ["contract.secret.>"] }"#;
    let Some(mut server) = server(rights).await else {
        return;
    };
    let sink = open(&address(&server, "app:x"), vec![]);
    let batch = [
        to("contract.event", "a"),
        to("contract.secret.b", "b"),
        to("contract.event", "c"),
        to("contract.secret.d", "d"),
        to("contract.secret.b", "e"),
    ];
    // The second time the sink already knows the refusal and must report it again.
    for _ in 0..2 {
        let began = Instant::now();
        let outcomes = sink.publish(&batch).await;
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "it waited for the timeout"
        );
        for (outgoing, outcome) in batch.iter().zip(&outcomes) {
            let topic = &outgoing.event.event.topic;
            if topic == "contract.event" {
                assert_eq!(*outcome, Outcome::Delivered);
                continue;
            }
            let error = failure(outcome);
            // It is not permanent: the right can be granted while the event waits.
            assert_eq!(
                (error.kind, error.in_doubt),
                (SinkErrorKind::NotGranted, false),
                "{error}"
            );
            assert!(
                error.message.contains("may not publish") && error.message.contains(topic.as_str()),
                "{error}"
            );
        }
    }
    assert_eq!(stored(&server).await.len(), 2);

    server.reconfigure(users("")).await;
    wait::until("the granted topic is accepted", async || {
        let _ = sink.check().await;
        sink.publish(&batch).await == vec![Outcome::Delivered; batch.len()]
    })
    .await;
    assert_eq!(stored(&server).await.len(), batch.len());
}

#[tokio::test]
async fn a_user_that_cannot_receive_acks_is_refused_at_once() {
    let Some(server) = server(r#"subscribe: ["elsewhere.>"]"#).await else {
        return;
    };
    let began = Instant::now();
    let url = address(&server, "app:x");
    let sink = open(&url, vec![]);
    let checked = sink.check().await.unwrap_err();
    let known = sink.publish(&[to("contract.event", "a")]).await;
    assert!(!failure(&known[0]).in_doubt, "the event is not sent");
    assert_eq!(stored(&server).await.len(), 0);
    let unknown = open(&url, vec![]).publish(&[to("contract.event", "a")]).await;
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "it waited for the timeout"
    );
    for error in [&checked, failure(&known[0]), failure(&unknown[0])] {
        assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{error}");
        assert!(error.message.contains("may not subscribe to _INBOX.>"), "{error}");
    }
}

#[tokio::test]
async fn a_user_that_may_only_publish_learns_the_missing_rights() {
    let Some(server) = server(r#"publish: ["contract.>"], subscribe: ["_INBOX.>"]"#).await else {
        return;
    };
    let url = address(&server, "app:x");
    let sink = open(&url, vec![]);
    sink.check().await.expect("publishing needs no other right");
    assert_eq!(
        sink.publish(&[to("contract.event", "a")]).await,
        [Outcome::Delivered]
    );
    let error = open(&url, vec![spec("S", "contract.>")])
        .check_streams()
        .await
        .unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{error}");
    assert!(
        error.message.contains("may not publish to $JS.API.STREAM.INFO.S"),
        "{error}"
    );
}

#[tokio::test]
async fn an_account_without_jetstream_says_so() {
    let accounts = "accounts { PLAIN: { users: [ { user: app, password: x } ] }, \
                    STREAMS: { jetstream: enabled, users: [ { user: admin, password: x } ] } }";
    let Some(server) = Nats::start_with(NatsOptions::configured(accounts)).await else {
        return;
    };
    let sink = open(&address(&server, "app:x"), vec![]);
    let error = sink.check().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unavailable, "{error}");
    assert!(
        error.message.contains("JetStream") && error.message.contains("account"),
        "{error}"
    );
    open(&address(&server, "admin:x"), vec![]).check().await.unwrap();
}
