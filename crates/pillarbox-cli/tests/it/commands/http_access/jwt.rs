//! Tokens of an identity provider whose keys change, and which is away at times.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};

use super::*;

/// Serves its keys; `None`: it is away.
struct Issuer {
    url: String,
    jwks: Arc<Mutex<Option<Value>>>,
    asked: Arc<Mutex<u32>>,
}

impl Issuer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/jwks", listener.local_addr().unwrap());
        let (jwks, asked) = (
            Arc::<Mutex<Option<Value>>>::default(),
            Arc::<Mutex<u32>>::default(),
        );
        let (served, count) = (jwks.clone(), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                *count.lock().unwrap() += 1;
                let Some(jwks) = served.lock().unwrap().clone() else {
                    continue;
                };
                let _ = stream.read(&mut [0; 4096]);
                let body = jwks.to_string();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + &body).as_bytes());
            }
        });
        Self { url, jwks, asked }
    }

    fn publishes(&self, keys: &[&Key]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
        *self.jwks.lock().unwrap() = Some(json!({ "keys": keys }));
    }
}

struct Key {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl Key {
    fn new(id: &'static str) -> Self {
        let (curve, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let key = EcdsaKeyPair::generate_pkcs8(curve, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(curve, key.as_ref(), &random).unwrap();
        Self { id, pair }
    }

    fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let part = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        json!({ "kty": "EC", "crv": "P-256", "alg": "ES256", "kid": self.id, "x": part(&point[1..33]), "y": part(&point[33..]) })
    }

    /// The header with a token that is valid for an hour, of this project or of all.
    fn token(&self, roles: &[&str], project: Option<&str>) -> String {
        self.token_until(jiff::Timestamp::now().as_second() + 3_600, roles, project)
    }

    fn token_until(&self, exp: i64, roles: &[&str], project: Option<&str>) -> String {
        let mut claims = json!({ "iss": "test", "aud": "pillarbox", "sub": "zoe", "exp": exp, "roles": roles });
        match project {
            Some(project) => claims["project"] = project.into(),
            None => claims["all"] = true.into(),
        }
        let header = json!({ "alg": "ES256", "kid": self.id });
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let message = format!("{header}.{claims}");
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        bearer(&format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[test]
fn a_jwt_is_accepted_as_long_as_its_key_is_known_and_new_keys_are_fetched() {
    let folder = migrated();
    let issuer = Issuer::start();
    let jwt = json!({ "jwks_url": issuer.url, "issuer": "test", "audience": "pillarbox", "project_claim": "project", "unscoped_claim": "all" });
    configure(folder.path(), &json!({ "listen": "127.0.0.1:0", "jwt": jwt }));
    let served = Served::start(folder.path(), &["run"]);
    let [first, second, third] = ["1", "2", "3"].map(Key::new);
    let token = first.token(&["read"], None);
    served.relay.says("the keys of the tokens' issuer can't be read");
    let away = get(&served, "/v1/status", &[&token]);
    assert_eq!(away.status, 503, "no key was ever known: {away:?}");
    assert!(away.head.contains("retry-after"), "{away:?}");
    drop(served);

    issuer.publishes(&[&first]);
    let served = Served::start(folder.path(), &["run"]);
    let status = |path: &str, token: &str| get(&served, path, &[token]).status;
    assert_eq!(status("/v1/status", &token), 200);
    assert_eq!(status("/v1/status", &first.token(&["produce"], None)), 403);
    assert_eq!(
        status("/v1/status", &first.token(&["read"], Some("shop"))),
        403,
        "it has a scope"
    );
    assert_eq!(status("/v1/openapi.json", &first.token(&["read"], Some("shop"))), 200);
    assert_eq!(status("/v1/status", &format!("{token}x")), 401);

    // A token with a new key: its key is fetched at once. The old key is not published any more.
    issuer.publishes(&[&second]);
    assert_eq!(status("/v1/status", &second.token(&["read"], None)), 200);
    assert_eq!(status("/v1/status", &token), 401);
    // Unknown keys do not make us ask again and again, and the known one goes on while the issuer is away.
    issuer.publishes(&[&third]);
    let asked = *issuer.asked.lock().unwrap();
    for _ in 0..5 {
        assert_eq!(status("/v1/status", &third.token(&["read"], None)), 401);
    }
    assert_eq!(*issuer.asked.lock().unwrap(), asked);
    *issuer.jwks.lock().unwrap() = None;
    assert_eq!(status("/v1/status", &second.token(&["read"], None)), 200);
}
