//! Access to Kafka: TLS, client certificates, SASL, and topics without permission.

use std::{fmt::Display, fs, path::Path};

use pillarbox_relay::{
    Sink,
    sink::{Outcome, SinkErrorKind},
};
use pillarbox_testkit::{
    authority::Authority,
    contract::sink::event,
    servers::{Kafka, KafkaOptions},
};

use super::harness::{failure, open, to};

const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule required user_app=\"rich tig\";";
const SCRAM: &str = "org.apache.kafka.common.security.scram.ScramLoginModule required;";

/// A broker that asks for user and password, with every SASL mechanism.
fn with_users(protocol: &'static str) -> KafkaOptions {
    let scram = |mechanism: &str| {
        let user = format!("{mechanism}=[name=app,password=rich tig]");
        ["--add-scram".to_owned(), user]
    };
    KafkaOptions {
        protocol,
        format: [scram("SCRAM-SHA-256"), scram("SCRAM-SHA-512")].concat(),
        ..KafkaOptions::default()
    }
    .set("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512")
    .set("listener.name.client.plain.sasl.jaas.config", PLAIN)
    .set("listener.name.client.scram-sha-256.sasl.jaas.config", SCRAM)
    .set("listener.name.client.scram-sha-512.sasl.jaas.config", SCRAM)
}

/// Adds a certificate for `host`. `auth` says whether clients need one too.
fn with_tls(
    options: KafkaOptions,
    authority: &Authority,
    folder: &Path,
    host: &str,
    auth: &str,
) -> KafkaOptions {
    let (certificate, key) = authority.certify(host);
    let store = folder.join("broker.pem");
    let both = fs::read_to_string(key).unwrap() + &fs::read_to_string(certificate).unwrap();
    fs::write(&store, both).unwrap();
    let path = |path: &Path| path.display().to_string();
    options
        .set("ssl.keystore.type", "PEM")
        .set("ssl.keystore.location", path(&store))
        .set("ssl.truststore.type", "PEM")
        .set("ssl.truststore.location", path(&authority.ca))
        .set("ssl.client.auth", auth)
}

fn address(server: &Kafka, user: impl Display, query: &str) -> String {
    format!("kafka://{user}{}?{query}", server.bootstrap())
}

async fn assert_delivers(url: &str) {
    let sink = open(url);
    sink.check().await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        sink.publish(&[to("orders", event("a", "1"))]).await,
        [Outcome::Delivered]
    );
}

async fn assert_refused(url: &str, kind: SinkErrorKind, why: &str) {
    let sink = open(url);
    for error in [
        sink.check().await.unwrap_err(),
        failure(&sink.publish(&[to("orders", event("a", "1"))]).await[0]).clone(),
    ] {
        assert_eq!((error.kind, error.in_doubt), (kind, false), "{error}");
        assert!(
            error.message.contains(why) && !error.message.contains("falsch"),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_come_in_over_tls_by_each_mechanism() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (authority, stranger) = (Authority::new(folder, "ca"), Authority::new(folder, "stranger"));
    let options = with_tls(with_users("SASL_SSL"), &authority, folder, "127.0.0.1", "none");
    let Some(server) = Kafka::start_with(options).await else {
        return;
    };
    server.create_topic("orders", 1).await;
    let ca = format!("ca={}", authority.ca.display());
    for mechanism in ["plain", "scram-sha-256", "scram-sha-512"] {
        let query = format!("{ca}&sasl={mechanism}");
        assert_delivers(&address(&server, "app:rich%20tig@", &query)).await;
        let wrong = address(&server, "app:falsch@", &query);
        assert_refused(&wrong, SinkErrorKind::Misconfigured, "refuses these credentials").await;
    }
    let password = folder.join("password");
    fs::write(&password, "rich tig\n").unwrap();
    let query = format!("{ca}&sasl=scram-sha-512&password_file={}", password.display());
    assert_delivers(&address(&server, "app@", &query)).await;

    let distrusted = format!("ca={}&sasl=plain", stranger.ca.display());
    let url = address(&server, "app:rich%20tig@", &distrusted);
    assert_refused(&url, SinkErrorKind::Unreachable, "no TLS connection").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_wants_our_certificate_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let authority = Authority::new(folder, "ca");
    let options = KafkaOptions {
        protocol: "SSL",
        ..KafkaOptions::default()
    };
    let options = with_tls(options, &authority, folder, "127.0.0.1", "required");
    let Some(server) = Kafka::start_with(options).await else {
        return;
    };
    server.create_topic("orders", 1).await;
    let (certificate, key) = authority.certify("relay");
    let ca = format!("ca={}", authority.ca.display());
    let ours = format!("{ca}&cert={}&key={}", certificate.display(), key.display());
    assert_delivers(&address(&server, "", &ours)).await;
    assert_refused(
        &address(&server, "", &ca),
        SinkErrorKind::Unreachable,
        "?cert=FILE&key=FILE",
    )
    .await;
    let sink = open(&address(&server, "", ""));
    let plain = sink.check().await.unwrap_err();
    assert!(
        matches!(plain.kind, SinkErrorKind::Unreachable | SinkErrorKind::Timeout),
        "{plain}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_another_host_is_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let authority = Authority::new(folder, "ca");
    let options = KafkaOptions {
        protocol: "SSL",
        ..KafkaOptions::default()
    };
    let options = with_tls(options, &authority, folder, "elsewhere.example", "none");
    let Some(server) = Kafka::start_with(options).await else {
        return;
    };
    let url = address(&server, "", &format!("ca={}", authority.ca.display()));
    let error = open(&url).check().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unreachable);
    assert!(error.message.contains("no TLS connection"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_not_granted_is_an_error_of_the_topic() {
    let options = with_users("SASL_PLAINTEXT")
        .set(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        .set("super.users", "User:ANONYMOUS");
    let Some(server) = Kafka::start_with(options).await else {
        return;
    };
    server.create_topic("orders", 1).await;
    let sink = open(&address(&server, "app:rich%20tig@", "sasl=scram-sha-256"));
    let error = failure(&sink.publish(&[to("orders", event("a", "1"))]).await[0]).clone();
    assert_eq!(
        (error.kind, error.in_doubt),
        (SinkErrorKind::NotGranted, false),
        "{error}"
    );
    assert!(error.message.contains("may not write to orders"), "{error}");
}
