//! Access to NATS: credentials, rights, and how a refusal is reported.

mod creds;
mod rights;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use pillarbox_relay::{
    Sink,
    engine::{Engine, Options},
    route::Routes,
    sink::{Outcome, SinkError, SinkErrorKind, Streams},
};
use pillarbox_testkit::memory::{MemoryStore, Status};
use pillarbox_testkit::{
    contract::sink::{event, outgoing},
    servers::{Nats, NatsOptions},
    wait,
};

use super::nats::{failure, open, spec, stored_for};

/// The address of the server with these credentials.
fn address(server: &Nats, login: &str) -> String {
    server.url().replace("nats://", &format!("nats://{login}@"))
}

/// The errors of a check and of a publish.
async fn both(url: &str) -> [SinkError; 2] {
    let sink = open(url, vec![]);
    [
        sink.check().await.unwrap_err(),
        failure(&sink.publish(&[outgoing(event("a", "1"))]).await[0]).clone(),
    ]
}

fn assert_refused_without(secret: &str, errors: &[SinkError]) {
    for error in errors {
        assert_eq!(
            (error.kind, error.in_doubt),
            (SinkErrorKind::Misconfigured, false),
            "{error}"
        );
        assert!(error.message.contains("refuses these credentials"), "{error}");
        assert!(
            !format!("{error} {error:?}").contains(secret),
            "it shows the secret: {error:?}"
        );
    }
}

#[tokio::test]
async fn a_wrong_password_is_a_matter_of_configuration_and_stays_hidden() {
    let options = NatsOptions::configured("authorization { user: app, password: richtig }");
    let Some(server) = Nats::start_with(options).await else {
        return;
    };
    for login in ["app:falsch", "falsch:richtig"] {
        assert_refused_without("falsch", &both(&address(&server, login)).await);
    }
    assert_refused_without("app", &both(&server.url()).await);
    open(&address(&server, "app:richtig"), vec![])
        .check()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_wrong_token_is_a_matter_of_configuration_and_stays_hidden() {
    let options = NatsOptions::configured("authorization { token: richtig }");
    let Some(server) = Nats::start_with(options).await else {
        return;
    };
    assert_refused_without("falsch", &both(&address(&server, "falsch")).await);
    let sink = open(&address(&server, "richtig"), vec![spec("S", "contract.>")]);
    sink.apply_streams().await.unwrap();
    let delivered = sink.publish(&[outgoing(event("a", "1"))]).await;
    assert_eq!(delivered, [Outcome::Delivered]);
    let client = async_nats::ConnectOptions::with_token("richtig".into());
    let client = client.connect(server.url()).await.unwrap();
    assert_eq!(stored_for(client, "S").await.len(), 1);
}

#[tokio::test]
async fn a_changed_password_is_reported_and_the_old_one_restored_works() {
    const RIGHT: &str = "authorization { user: app, password: richtig }";
    let Some(mut server) = Nats::start_with(NatsOptions::configured(RIGHT)).await else {
        return;
    };
    let sink = open(&address(&server, "app:richtig"), vec![spec("S", "contract.>")]);
    sink.apply_streams().await.unwrap();
    server
        .reconfigure("authorization { user: app, password: anders }")
        .await;
    // The first error depends on whether the client already knows that the connection is closed. Later ones
    // don't.
    let refused = wait::until_ok(async || match sink.check().await.unwrap_err() {
        error if error.kind == SinkErrorKind::Misconfigured => Ok(error),
        error => Err(error),
    })
    .await;
    assert_refused_without("richtig", &[refused]);
    server.reconfigure(RIGHT).await;
    wait::until_ok(async || sink.check().await).await;
    let delivered = sink.publish(&[outgoing(event("a", "1"))]).await;
    assert_eq!(delivered, [Outcome::Delivered]);
}

/// Stopping loses no event. Waiting would not help: a person must start the relay with the right password.
#[tokio::test]
async fn a_relay_stops_on_a_password_that_is_wrong_or_becomes_so_and_leaves_its_events_as_they_are() {
    const RIGHT: &str = "authorization { user: app, password: richtig }";
    let Some(mut server) = Nats::start_with(NatsOptions::configured(RIGHT)).await else {
        return;
    };
    let url = address(&server, "app:richtig");
    open(&url, vec![spec("S", "contract.>")])
        .apply_streams()
        .await
        .unwrap();
    let store = MemoryStore::default();
    let enqueue = || {
        let mut transaction = store.begin();
        transaction.enqueue(event("a", "1"));
        transaction.commit();
    };
    let start = || {
        let sink: Arc<dyn Sink> = Arc::new(open(&url, vec![]));
        let sinks = BTreeMap::from([("events".into(), sink)]);
        Engine {
            store: Arc::new(store.clone()),
            sinks,
            routes: Routes::to_one("events"),
            options: Options::default(),
        }
        .start()
    };
    let relay = start();
    enqueue();
    wait::until("it is delivered", async || {
        store.rows()[0].status == Status::Published
    })
    .await;
    server
        .reconfigure("authorization { user: app, password: anders }")
        .await;
    enqueue();
    for relay in [relay, start()] {
        let ended = tokio::time::timeout(Duration::from_secs(20), relay.finished());
        let error = ended.await.expect("the relay did not stop").unwrap_err();
        let said = format!("{error} {error:?}");
        assert!(
            said.contains("`events`") && said.contains("refuses these credentials"),
            "{said}"
        );
        assert!(!said.contains("richtig"), "{said}");
    }
    let row = &store.rows()[1];
    assert_eq!((row.status, row.stored.attempts), (Status::Pending, 0));
}
