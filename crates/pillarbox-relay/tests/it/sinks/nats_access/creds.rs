//! Creds files: a user's JWT and its key.

use std::path::PathBuf;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use nkeys::KeyPair;
use pillarbox_relay::{
    Sink,
    sink::{Outcome, Streams},
};
use pillarbox_testkit::{
    contract::sink::{event, outgoing},
    servers::{Nats, NatsOptions},
};
use serde_json::{Value, json};

use super::{
    super::nats::{open, spec},
    assert_refused_without, both,
};

/// A JWT about `subject`, signed by `by`.
fn jwt(by: &KeyPair, subject: &KeyPair, nats: Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let said = format!(
        "{}.{}",
        part(&json!({ "typ": "JWT", "alg": "ed25519-nkey" })),
        part(&json!({
            "jti": subject.public_key(), "iat": 1_700_000_000, "iss": by.public_key(), "sub": subject.public_key(),
            "name": "test", "nats": nats,
        })),
    );
    let signature = URL_SAFE_NO_PAD.encode(by.sign(said.as_bytes()).unwrap());
    format!("{said}.{signature}")
}

/// An operator with one account that may use JetStream.
struct Operator {
    configuration: String,
    account: KeyPair,
}

impl Operator {
    fn new() -> Self {
        let (operator, account, system) = (
            KeyPair::new_operator(),
            KeyPair::new_account(),
            KeyPair::new_account(),
        );
        let limits = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
            "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
        });
        let of_account = json!({ "type": "account", "version": 2, "limits": limits });
        let plain = json!({ "type": "account", "version": 2, "limits": { "subs": -1, "data": -1, "payload": -1,
            "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1 } });
        let configuration = format!(
            "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}\n",
            jwt(&operator, &operator, json!({ "type": "operator", "version": 2 })),
            system.public_key(),
            account.public_key(),
            jwt(&operator, &account, of_account),
            system.public_key(),
            jwt(&operator, &system, plain),
        );
        Self {
            configuration,
            account,
        }
    }

    /// Writes the creds file of a new user whose JWT is signed by `signer`.
    fn creds(&self, folder: &tempfile::TempDir, name: &str, signer: &KeyPair) -> (PathBuf, String) {
        let user = KeyPair::new_user();
        let of_user = json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
        let seed = user.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n",
            jwt(signer, &user, of_user),
        );
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        (path, seed)
    }
}

#[tokio::test]
async fn only_a_valid_creds_file_connects() {
    let operator = Operator::new();
    let options = NatsOptions::configured(operator.configuration.as_str());
    let Some(server) = Nats::start_with(options).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = operator.creds(&folder, "app.creds", &operator.account);
    let url = format!("{}?creds={}", server.url(), path.display());
    let sink = open(&url, vec![spec("S", "contract.>")]);
    sink.apply_streams().await.unwrap();
    sink.check().await.unwrap();
    let delivered = sink.publish(&[outgoing(event("a", "1"))]).await;
    assert_eq!(delivered, [Outcome::Delivered]);

    let (path, seed) = operator.creds(&folder, "stranger.creds", &KeyPair::new_account());
    let url = format!("{}?creds={}", server.url(), path.display());
    assert_refused_without(&seed, &both(&url).await);
}
