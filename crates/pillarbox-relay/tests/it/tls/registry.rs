//! A stub of the schema registry's HTTP API behind TLS: it is not a registry.

use std::path::{Path, PathBuf};

use pillarbox::Event;
use pillarbox_relay::{
    check::{
        CheckOptions, Checks, OnFailure,
        registry::{RegistryOptions, WhenAway},
        schemas::{SchemaOptions, SchemaSource},
    },
    tls::TlsFiles,
};
use pillarbox_testkit::{schema_registry_stub::SchemaRegistryStub, tls_server::TlsServer};

use super::PASSWORD;
use pillarbox_testkit::authority::Authority;

fn checks(url: &str, tls: TlsFiles) -> Result<Checks, String> {
    let registry = RegistryOptions {
        tls,
        when_away: WhenAway::Reject,
        ..RegistryOptions::new(url)
    };
    let options = CheckOptions {
        schemas: Some(SchemaOptions {
            source: SchemaSource::Registry(registry),
            missing_passes: false,
            on_failure: OnFailure::Reject,
        }),
        ..CheckOptions::default()
    };
    Checks::new(&options, None).map_err(|error| error.to_string())
}

/// Why an event is rejected.
async fn rejection(url: &str, tls: TlsFiles) -> Option<String> {
    let event = Event::to("shop.placed")
        .event_type("Placed")
        .aggregate("order", "1");
    let event = event.payload("4711");
    let findings = checks(url, tls)
        .unwrap()
        .look(&[(1, &event)], None)
        .await
        .unwrap();
    findings[0].rejection()
}

fn files(ca: &Path, identity: Option<&(PathBuf, PathBuf)>) -> TlsFiles {
    TlsFiles {
        ca: Some(ca.to_owned()),
        identity: identity.cloned(),
    }
}

#[tokio::test]
async fn the_registry_is_verified_and_gets_our_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ours");
    let stranger = Authority::new(folder.path(), "stranger");
    let (certificate, key) = authority.certify("127.0.0.1");
    let tls = TlsServer::new(&certificate, &key, Some(&authority.ca));
    let stub = SchemaRegistryStub::start_secure(tls).await.unwrap();
    stub.put("Placed", 1, r#"{ "type": "integer" }"#);
    let url = stub.url_with(&format!("app:{PASSWORD}"));
    let ours = authority.certify("app");
    let right = files(&authority.ca, Some(&ours));
    assert_eq!(rejection(&url, right.clone()).await, None);

    let elsewhere = url.replace("127.0.0.1", "localhost");
    for (url, tls, why) in [
        (&url, files(&stranger.ca, Some(&ours)), "UnknownIssuer"),
        (&url, TlsFiles::default(), "UnknownIssuer"),
        (&elsewhere, right, "not valid for name"),
        (&url, files(&authority.ca, None), "ertificate"),
    ] {
        let text = rejection(url, tls).await.unwrap();
        for part in [
            "the schema registry is away: no TLS connection",
            "schema_registry_ca",
            "schema_registry_cert",
            why,
        ] {
            assert!(text.contains(part), "`{part}` is missing: {text}");
        }
        assert!(!text.contains(PASSWORD), "{text}");
    }
}

#[test]
fn a_file_that_can_not_be_used_is_named_at_the_start() {
    let missing = files(Path::new("/nowhere/ca.pem"), None);
    let error = checks("https://registry.example", missing).err().unwrap();
    assert!(
        error.contains("/nowhere/ca.pem") && error.contains("schema registry"),
        "{error}"
    );
}
