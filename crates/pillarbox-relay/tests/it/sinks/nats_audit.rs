//! The live audit of JetStream: what is found, what has expired, and what is lost.

use std::time::Duration;

use async_nats::jetstream::{self, stream};
use pillarbox_relay::{
    Sink,
    sink::{Outcome, Outgoing, Streams, audit::Audited, nats::NatsSink},
};
use pillarbox_testkit::{
    contract::sink::{event, outgoing},
    servers::{Nats, NatsOptions},
    wait,
};
use uuid::Uuid;

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
        self.sink.audit().unwrap().audit().await.unwrap()
    }

    /// Each in its own batch, so that each has a receipt. The sequences begin at 1.
    async fn publish(&self, count: usize) -> Vec<Uuid> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.publish_one(&outgoing(event("a", "1"))).await);
        }
        ids
    }

    async fn publish_one(&self, outgoing: &Outgoing) -> Uuid {
        let outcomes = self.sink.publish(std::slice::from_ref(outgoing)).await;
        assert_eq!(outcomes, [Outcome::Delivered]);
        outgoing.event.event.id
    }

    /// Changes the stream's limits.
    async fn limit(&self, adjust: impl FnOnce(&mut stream::Config)) {
        let mut config = self.stream.cached_info().config.clone();
        adjust(&mut config);
        self.jetstream.update_stream(config).await.unwrap();
    }
}

fn lost(checked: u64, lost: &[Uuid]) -> Audited {
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
    assert_eq!(scene.audited().await, lost(5, &ids[2..3]));

    // Without a limit, nothing explains that they are gone.
    let ids = scene.publish(3).await;
    scene.stream.purge().sequence(13).await.unwrap();
    assert_eq!(sorted(scene.audited().await), lost(3, &ids[..2]));

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
    let audited = sorted(scene.audited().await);
    assert_eq!(audited, lost(4, &ids));
    assert!(!audited.lost.contains(&before[0]));

    let ids = scene.publish(2).await;
    scene.jetstream.delete_stream(STREAM).await.unwrap();
    assert_eq!(sorted(scene.audited().await), lost(2, &ids), "without a stream");
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
    audit.audit().await.unwrap();
    let outcomes = sink.publish(&[outgoing(event("a", "1"))]).await;
    assert_eq!(outcomes, [Outcome::Delivered]);
    let error = audit.audit().await.unwrap_err();
    assert!(
        error.message.contains("$JS.API.STREAM.MSG.GET.S. Grant it"),
        "{error}"
    );
    // It does not affect deliveries.
    let outcomes = sink.publish(&[outgoing(event("a", "2"))]).await;
    assert_eq!(outcomes, [Outcome::Delivered]);
}
