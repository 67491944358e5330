//! MongoDB that wants a certificate of its clients.

use std::{fs, path::PathBuf};

use pillarbox_relay::store::StoreErrorKind::Away;
use pillarbox_testkit::servers::{Mongo, MongoOptions};

use super::{assert_delivers, assert_refused, assert_refused_before_connecting};
use pillarbox_testkit::authority::Authority;

/// A certificate and its key in one file, as MongoDB wants them.
fn both(authority: &Authority, name: &str) -> PathBuf {
    let (certificate, key) = authority.certify(name);
    let text = fs::read_to_string(&certificate).unwrap() + &fs::read_to_string(&key).unwrap();
    let path = certificate.with_extension("pem");
    fs::write(&path, text).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn mongodb_is_verified_and_gets_our_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ours");
    let stranger = Authority::new(folder.path(), "stranger");
    // The test's own clients speak without TLS, for which no certificate is needed.
    let arguments = vec![
        "--tlsMode=allowTLS".to_owned(),
        format!(
            "--tlsCertificateKeyFile={}",
            both(&authority, "127.0.0.1").display()
        ),
        format!("--tlsCAFile={}", authority.ca.display()),
    ];
    let options = MongoOptions {
        arguments,
        ..MongoOptions::default()
    };
    let Some(server) = Mongo::start_with(options).await else {
        return;
    };
    let address = |query: &str| format!("{}&tls=true{query}", server.url_of("shop"));
    let trusting = |authority: &Authority| format!("&tlsCAFile={}", authority.ca.display());
    let ours = format!("&tlsCertificateKeyFile={}", both(&authority, "app").display());
    let right = trusting(&authority) + &ours;
    assert_delivers(&address(&right)).await;

    let trust = ["no TLS connection", "tlsCAFile=FILE", "UnknownIssuer"];
    let host = ["no TLS connection", "names this host", "not valid for name"];
    let client = ["no TLS connection", "tlsCertificateKeyFile=FILE"];
    let strange = address(&(trusting(&stranger) + &ours));
    let elsewhere = address(&right).replace("127.0.0.1", "localhost");
    let unknown = address(&trusting(&authority));
    // The driver tries each until its timeout.
    tokio::join!(
        assert_refused(&strange, Away, &trust),
        assert_refused(&elsewhere, Away, &host),
        assert_refused(&unknown, Away, &client),
    );

    let missing = address("&tlsCAFile=/nowhere/ca.pem");
    assert_refused_before_connecting(&missing, &["/nowhere/ca.pem", "MongoDB's address"]);
    let (certificate, _) = authority.certify("keyless");
    let keyless = address(&format!("&tlsCertificateKeyFile={}", certificate.display()));
    assert_refused_before_connecting(&keyless, &["keyless.crt", "a private key was expected"]);
}
