//! The live audit of JetStream: what is found, what has expired, and what is lost.

use std::time::Duration;

use async_nats::jetstream::{self, stream};
use pillarbox::EventId;
use pillarbox_relay::{
    Sink,
    sink::{Outcome, Outgoing, Streams, audit::Audited, nats::NatsSink},
};
use pillarbox_testkit::{
    contract::sink::{event, outgoing},
    servers::{Nats, NatsOptions},
    wait,
};

use super::nats::{open, spec};

const STREAM: &str = "S";

/// A sink that keeps receipts, and its stream.
struct Scene {
    sink: NatsSink,
    jetstream: jetstream::Context,
    stream: stream::Stream,
}

impl Scene {
    async fn new(server: &Nats) -> Self {
        let sink = open(&server.url(), vec![spec(STREAM, "contract.>")]);
        sink.apply_streams().await.unwrap();
        let jetstream = jetstream::new(async_nats::connect(server.url()).await.unwrap());
        let stream = jetstream.get_stream(STREAM).await.unwrap();
        let scene = Self {
            sink,
            jetstream,
            stream,
        };
        assert_eq!(
            scene.audited().await,
            Audited::default(),
            "the first audit only begins"
        );
        scene
    }

    async fn audited(&self) -> Audited {
        self.sink.audit().unwrap().audit().await
    }

    /// What seems lost is looked up by a second audit.
    async fn audited_twice(&self) -> Audited {
        let first = self.audited().await;
        assert!(first.lost.is_empty(), "{first:?}");
        let second = self.audited().await;
        Audited {
            checked: first.checked + second.checked,
            expired: first.expired + second.expired,
            copies: first.copies + second.copies,
            ..second
        }
    }

    /// Each in its own batch, so that each has a receipt. The sequences begin at 1.
    async fn publish(&self, count: usize) -> Vec<EventId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.publish_one(&outgoing(event("a", "1"))).await);
        }
        ids
    }

    async fn publish_one(&self, outgoing: &Outgoing) -> EventId {
        let outcomes = self.sink.publish(std::slice::from_ref(outgoing)).await;
        assert_eq!(outcomes, [Outcome::Delivered]);
        outgoing.event.event.id.clone()
    }

    /// Changes the stream's limits.
    async fn limit(&self, adjust: impl FnOnce(&mut stream::Config)) {
        let mut config = self.stream.cached_info().config.clone();
        adjust(&mut config);
        self.jetstream.update_stream(config).await.unwrap();
    }
}

fn lost(checked: u64, lost: &[EventId]) -> Audited {
    let mut lost = lost.to_vec();
    lost.sort_unstable();
    Audited {
        checked,
        lost,
        ..Audited::default()
    }
}

fn sorted(mut audited: Audited) -> Audited {
    audited.lost.sort_unstable();
    audited
}

#[tokio::test]
async fn a_deleted_message_is_lost_and_one_that_a_limit_removed_has_expired() {
    let Some(server) = Nats::start().await else { return };
    let scene = Scene::new(&server).await;
    scene.publish(5).await;
    assert_eq!(scene.audited().await, lost(5, &[]));
    assert_eq!(scene.audited().await, lost(0, &[]), "each event once");

    let ids = scene.publish(5).await;
    assert!(scene.stream.delete_message(8).await.unwrap());
    assert_eq!(scene.audited_twice().await, lost(5, &ids[2..3]));

    // Without a limit, nothing explains that they are gone.
    let ids = scene.publish(3).await;
    scene.stream.purge().sequence(13).await.unwrap();
    assert_eq!(sorted(scene.audited_twice().await), lost(3, &ids[..2]));

    scene.publish(5).await;
    scene.limit(|config| config.max_messages = 2).await;
    let expired = Audited {
        checked: 5,
        expired: 3,
        ..Audited::default()
    };
    assert_eq!(scene.audited().await, expired);
}

#[tokio::test]
async fn events_of_a_stream_that_was_created_again_are_lost() {
    let Some(server) = Nats::start().await else { return };
    let scene = Scene::new(&server).await;
    let ids = scene.publish(3).await;
    scene.jetstream.delete_stream(STREAM).await.unwrap();
    scene.sink.apply_streams().await.unwrap();
    // The first place of the new stream is taken by another event.
    let before = scene.publish(1).await;
    let audited = sorted(scene.audited_twice().await);
    assert_eq!(audited, lost(4, &ids));
    assert!(!audited.lost.contains(&before[0]));

    let ids = scene.publish(2).await;
    scene.jetstream.delete_stream(STREAM).await.unwrap();
    assert_eq!(
        sorted(scene.audited_twice().await),
        lost(2, &ids),
        "without a stream"
    );
}

/// The broker loses its disk while nobody can look.
#[tokio::test]
async fn a_loss_during_an_outage_is_found_after_it() {
    let Some(mut server) = Nats::start().await else {
        return;
    };
    let scene = Scene::new(&server).await;
    let ids = scene.publish(3).await;
    server.stop().await;
    let away = scene.audited().await;
    assert_eq!(
        (away.checked, away.lost.len(), away.problems.len()),
        (0, 0, 1),
        "{away:?}"
    );
    assert_eq!(away.problems[0].place, None);
    server.start_again_empty().await;
    wait::until("the sink is connected again", async || {
        scene.sink.check().await.is_ok()
    })
    .await;
    assert_eq!(sorted(scene.audited_twice().await), lost(3, &ids));
}

#[tokio::test]
async fn a_stream_that_can_not_be_read_does_not_hide_the_others() {
    let rights = "authorization { users: [ \
                  { user: root, password: r }, \
                  { user: app, password: geheim, permissions: { \
                    publish: [\"contract.>\", \"closed.>\", \"$JS.API.STREAM.*.S\", \"$JS.API.STREAM.MSG.GET.S\"], \
                    subscribe: [\"_INBOX.>\"] } } ] }";
    let Some(server) = Nats::start_with(NatsOptions::configured(rights.to_owned())).await else {
        return;
    };
    let with = |user: &str| server.url().replace("nats://", &format!("nats://{user}@"));
    let root = open(
        &with("root:r"),
        vec![spec(STREAM, "contract.>"), spec("CLOSED", "closed.>")],
    );
    root.apply_streams().await.unwrap();
    let sink = open(&with("app:geheim"), vec![]);
    let audit = sink.audit().unwrap();
    audit.audit().await;
    // The one that can't be read comes first.
    let closed = outgoing(event("a", "1").topic("closed.x"));
    let sent = [
        &closed,
        &outgoing(event("a", "2")),
        &closed,
        &outgoing(event("a", "3")),
    ];
    for outgoing in sent {
        let outcomes = sink.publish(std::slice::from_ref(outgoing)).await;
        assert_eq!(outcomes, [Outcome::Delivered]);
    }
    let audited = audit.audit().await;
    assert_eq!(audited.checked, 2, "{audited:?}");
    let [problem] = &audited.problems[..] else {
        panic!("{audited:?}")
    };
    assert_eq!(problem.place.as_deref(), Some("stream CLOSED"));
    assert_eq!(audit.audit().await.problems.len(), 1, "they are looked up again");
}

/// A leaf node with a domain of its own passes the events on to the hub.
#[tokio::test]
async fn a_stream_of_another_domain_is_looked_up_there() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let hub = format!("jetstream {{ domain: hub }}\nleafnodes {{ host: 127.0.0.1, port: {port} }}");
    let Some(hub) = Nats::start_with(NatsOptions::configured(hub)).await else {
        return;
    };
    let leaf = format!(
        "jetstream {{ domain: leaf }}\nleafnodes {{ remotes: [ {{ url: \"nats-leaf://127.0.0.1:{port}\" }} ] }}"
    );
    let Some(leaf) = Nats::start_with(NatsOptions::configured(leaf)).await else {
        return;
    };
    let at_hub = open(&hub.url(), vec![spec(STREAM, "contract.>")]);
    at_hub.apply_streams().await.unwrap();
    let sink = open(&leaf.url(), vec![]);
    let audit = sink.audit().unwrap();
    assert_eq!(audit.audit().await, Audited::default());
    wait::until("the hub stores what the leaf gets", async || {
        sink.publish(&[outgoing(event("a", "1"))]).await == [Outcome::Delivered]
    })
    .await;
    let audited = audit.audit().await;
    assert!(audited.checked >= 1, "{audited:?}");
    assert_eq!(audited, lost(audited.checked, &[]));
    let again = audit.audit().await;
    assert_eq!(again, Audited::default(), "nothing seemed lost");
}

#[tokio::test]
async fn a_second_message_of_an_event_is_a_copy() {
    let Some(server) = Nats::start().await else { return };
    let scene = Scene::new(&server).await;
    scene
        .limit(|config| config.duplicate_window = Duration::from_millis(100))
        .await;
    let outgoing = outgoing(event("a", "1"));
    scene.publish_one(&outgoing).await;
    assert_eq!(scene.audited().await.copies, 0);
    wait::until("the server has forgotten the id", async || {
        scene.publish_one(&outgoing).await;
        let mut stream = scene.jetstream.get_stream(STREAM).await.unwrap();
        stream.info().await.unwrap().state.messages == 2
    })
    .await;
    assert_eq!(scene.audited().await.copies, 1);
}

#[tokio::test]
async fn a_user_without_the_right_to_read_is_told_what_to_grant() {
    let rights = "authorization { users: [ \
                  { user: root, password: r }, \
                  { user: app, password: geheim, permissions: { publish: [\"contract.>\"], subscribe: [\"_INBOX.>\"] } } ] }";
    let Some(server) = Nats::start_with(NatsOptions::configured(rights.to_owned())).await else {
        return;
    };
    let with = |user: &str| server.url().replace("nats://", &format!("nats://{user}@"));
    let root = open(&with("root:r"), vec![spec(STREAM, "contract.>")]);
    root.apply_streams().await.unwrap();
    let sink = open(&with("app:geheim"), vec![]);
    let audit = sink.audit().unwrap();
    audit.audit().await;
    let outcomes = sink.publish(&[outgoing(event("a", "1"))]).await;
    assert_eq!(outcomes, [Outcome::Delivered]);
    let audited = audit.audit().await;
    assert!(
        audited.problems[0]
            .why
            .contains("$JS.API.STREAM.MSG.GET.S. Grant it"),
        "{audited:?}"
    );
    // It does not affect deliveries.
    let outcomes = sink.publish(&[outgoing(event("a", "2"))]).await;
    assert_eq!(outcomes, [Outcome::Delivered]);
}
