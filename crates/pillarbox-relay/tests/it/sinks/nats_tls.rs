//! NATS over TLS, with certificates that the test creates.

use std::path::Path;

use pillarbox_relay::{
    Sink,
    connect::SinkOptions,
    sink::{Outcome, SinkErrorKind, Streams, nats::NatsSink},
};
use pillarbox_testkit::{
    authority::Authority,
    contract::sink::{event, outgoing},
    servers::{Nats, NatsOptions},
    wait,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::nats::{failure, open, spec};

/// Starts a server with a certificate for `host`. With `verify`, clients need one of this authority too.
async fn server(authority: &Authority, host: &str, verify: bool) -> Option<Nats> {
    Nats::start_with(NatsOptions::configured(configuration(authority, host, verify))).await
}

fn configuration(authority: &Authority, host: &str, verify: bool) -> String {
    let (certificate, key) = authority.certify(host);
    let mut tls = format!("cert_file: {certificate:?}, key_file: {key:?}");
    if verify {
        tls = format!("{tls}, ca_file: {:?}, verify: true", authority.ca);
    }
    format!("tls {{ {tls} }}")
}

fn address(server: &Nats, query: &str) -> String {
    format!("{}?{query}", server.url().replace("nats://", "tls://"))
}

async fn assert_refused(url: &str, why: &str) {
    let sink = open(url, vec![]);
    for error in [
        sink.check().await.unwrap_err(),
        failure(&sink.publish(&[outgoing(event("a", "1"))]).await[0]).clone(),
    ] {
        assert_eq!(
            (error.kind, error.in_doubt),
            (SinkErrorKind::Unreachable, false),
            "{error}"
        );
        assert!(
            error.message.contains("no TLS connection") && error.message.contains(why),
            "{error}"
        );
    }
}

async fn assert_delivers(url: &str) {
    let sink = open(url, vec![spec("S", "contract.>")]);
    sink.apply_streams().await.unwrap();
    let outcomes = sink.publish(&[outgoing(event("a", "1"))]).await;
    assert_eq!(outcomes, [Outcome::Delivered]);
}

#[tokio::test]
async fn a_certificate_is_taken_from_the_authority_named_and_from_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ours");
    let other = Authority::new(folder.path(), "other");
    let Some(server) = server(&authority, "127.0.0.1", false).await else {
        return;
    };
    let trusting = |ca: &Path| format!("ca={}", ca.display());
    assert_delivers(&address(&server, &trusting(&authority.ca))).await;
    // If the server requires TLS, the client uses it, whatever the address says.
    assert_delivers(&format!("{}?{}", server.url(), trusting(&authority.ca))).await;
    assert_refused(&address(&server, &trusting(&other.ca)), "UnknownIssuer").await;
    assert_refused(&address(&server, ""), "UnknownIssuer").await;
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ours");
    let Some(server) = server(&authority, "nats.example", false).await else {
        return;
    };
    assert_refused(
        &address(&server, &format!("ca={}", authority.ca.display())),
        "not valid for name",
    )
    .await;
}

#[tokio::test]
async fn a_server_that_wants_to_know_its_clients_takes_our_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ours");
    let Some(server) = server(&authority, "127.0.0.1", true).await else {
        return;
    };
    let trusting = format!("ca={}", authority.ca.display());
    let (certificate, key) = authority.certify("app");
    let known = format!("{trusting}&cert={}&key={}", certificate.display(), key.display());
    assert_delivers(&address(&server, &known)).await;
    assert_refused(&address(&server, &trusting), "ertificate").await;
}

#[tokio::test]
async fn a_replaced_certificate_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ours");
    let Some(mut server) = server(&authority, "nats.example", false).await else {
        return;
    };
    let sink = open(
        &address(&server, &format!("ca={}", authority.ca.display())),
        vec![spec("S", "contract.>")],
    );
    sink.check().await.unwrap_err();
    server
        .reconfigure(configuration(&authority, "127.0.0.1", false))
        .await;
    wait::until_ok(async || sink.apply_streams().await).await;
    let outcomes = sink.publish(&[outgoing(event("a", "1"))]).await;
    assert_eq!(outcomes, [Outcome::Delivered]);
}

/// The server offers no TLS and records what it receives.
#[tokio::test]
async fn an_address_that_asks_for_tls_never_speaks_in_the_clear() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let info =
            br#"INFO {"server_id":"x","version":"2.10.0","host":"127.0.0.1","port":1,"max_payload":1048576}"#;
        stream.write_all(&[&info[..], b"\r\n"].concat()).await.unwrap();
        let mut heard = vec![0; 4096];
        let count = stream.read(&mut heard).await.unwrap();
        heard.truncate(count);
        stream
            .write_all(b"-ERR 'Unknown Protocol Operation'\r\n")
            .await
            .unwrap();
        heard
    });
    let sink = open(&format!("tls://app:geheim@127.0.0.1:{port}"), vec![]);
    let error = sink.check().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unreachable, "{error}");
    assert!(!error.message.contains("geheim"), "{error}");
    let heard = heard.await.unwrap();
    assert_eq!(
        heard.first(),
        Some(&0x16),
        "the client must send a TLS handshake, not CONNECT"
    );
    assert!(!heard.windows(6).any(|window| window == b"geheim"));
}

#[tokio::test]
async fn a_server_without_tls_is_reported() {
    let Some(server) = Nats::start().await else { return };
    assert_refused(&address(&server, ""), "TLS").await;
}

#[test]
fn a_file_without_a_certificate_is_refused_before_connecting() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "no certificate\n").unwrap();
    let url = format!("tls://127.0.0.1:1?ca={}", empty.display());
    let error = NatsSink::open(&SinkOptions::new(url)).err().unwrap();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured);
    assert!(error.message.contains("empty.pem"), "{error}");
}
