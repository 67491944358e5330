//! PostgreSQL that wants a certificate of its clients.

use std::{fs, path::Path};

use pillarbox_relay::store::StoreErrorKind::{Away, Misconfigured};
use pillarbox_testkit::servers::{Postgres, PostgresOptions};

use super::{PASSWORD, assert_delivers, assert_refused, assert_refused_before_connecting};
use pillarbox_testkit::authority::Authority;

/// `postgres` prepares the test. `app` needs TLS and a certificate that names it.
const CLIENTS: &str = "\
host     all  postgres  127.0.0.1/32  trust
hostssl  all  app       127.0.0.1/32  trust  clientcert=verify-full
";

async fn server(authority: &Authority) -> Option<Postgres> {
    let (certificate, key) = authority.certify("127.0.0.1");
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let options = PostgresOptions::default()
        .set("ssl", "on")
        .set("ssl_cert_file", "server.crt")
        .set("ssl_key_file", "server.key")
        .set("ssl_ca_file", "ca.crt")
        .file("server.crt", read(&certificate))
        .file("server.key", read(&key))
        .file("ca.crt", read(&authority.ca))
        .file("pg_hba.conf", CLIENTS.to_owned());
    Postgres::start(options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_verified_and_gets_our_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ours");
    let stranger = Authority::new(folder.path(), "stranger");
    let Some(server) = server(&authority).await else {
        return;
    };
    let direct = sqlx::PgPool::connect(&server.url()).await.unwrap();
    for sql in ["create role app login", "create database shop owner app"] {
        sqlx::query(sql).execute(&direct).await.unwrap();
    }
    let address = |host: &str, query: &str| {
        let port = server.port();
        format!("postgres://app:{PASSWORD}@{host}:{port}/shop?sslmode=verify-full{query}")
    };
    let trusting = |authority: &Authority| format!("&sslrootcert={}", authority.ca.display());
    let (certificate, key) = authority.certify("app");
    let ours = format!("&sslcert={}&sslkey={}", certificate.display(), key.display());
    let right = trusting(&authority) + &ours;
    assert_delivers(&address("127.0.0.1", &right)).await;

    let trust = ["no TLS connection", "sslrootcert=FILE", "UnknownIssuer"];
    let wrong = trusting(&stranger) + &ours;
    assert_refused(&address("127.0.0.1", &wrong), Away, &trust).await;
    // Without an authority, those that every machine knows.
    assert_refused(&address("127.0.0.1", &ours), Away, &trust).await;
    let host = ["no TLS connection", "names this host", "not valid for name"];
    assert_refused(&address("localhost", &right), Away, &host).await;
    let client = ["another client certificate", "sslcert=FILE&sslkey=FILE"];
    assert_refused(
        &address("127.0.0.1", &trusting(&authority)),
        Misconfigured,
        &client,
    )
    .await;
    let (certificate, key) = authority.certify("somebody");
    let theirs = format!("&sslcert={}&sslkey={}", certificate.display(), key.display());
    let other = trusting(&authority) + &theirs;
    let refused = ["refuses this user or password", "sslcert"];
    assert_refused(&address("127.0.0.1", &other), Misconfigured, &refused).await;

    let missing = address("127.0.0.1", "&sslrootcert=/nowhere/ca.pem");
    assert_refused_before_connecting(&missing, &["/nowhere/ca.pem", "the database's address"]);
    let swapped = address("127.0.0.1", &format!("&sslrootcert={}", key.display()));
    assert_refused_before_connecting(&swapped, &["somebody.key", "a certificate was expected"]);
}
