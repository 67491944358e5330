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
        let mut claims =
            json!({ "iss": "test", "aud": "pillarbox", "sub": "zoe", "exp": exp, "roles": roles });
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
    assert_eq!(
        status("/v1/openapi.json", &first.token(&["read"], Some("shop"))),
        200
    );
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

#[test]
fn a_stream_ends_with_its_token() {
    let folder = migrated();
    let (issuer, key) = (Issuer::start(), Key::new("1"));
    issuer.publishes(&[&key]);
    let jwt = json!({
        "jwks_url": issuer.url, "issuer": "test", "audience": "pillarbox", "leeway_seconds": 0,
        "project_claim": "project", "unscoped_claim": "all",
    });
    configure(folder.path(), &json!({ "listen": "127.0.0.1:0", "jwt": jwt }));
    let events: String = [(1, "shop"), (2, "other")]
        .map(|(n, project)| {
            let mut event: Value = serde_json::from_str(&line(n)).unwrap();
            event["topic"] = "kept.x".into();
            event["project_id"] = project.into();
            format!("{event}\n")
        })
        .concat();
    super::super::dead_http::enqueue(folder.path(), &events);
    let served = Served::start(folder.path(), &["run"]);
    let lasting = key.token(&["read"], None);
    until_blocking("both are delivered", || {
        let events = get(&served, "/v1/events", &[&lasting]).json();
        events["events"].as_array().unwrap().len() == 2
    });

    let exp = jiff::Timestamp::now().as_second() + 3;
    let token = key.token_until(exp, &["read"], Some("shop"));
    let address = &served.address;
    let stream = |more: &[&str]| {
        let headers = [&[HOST, &token], more].concat();
        // Shorter than the time between two heartbeats.
        ask(
            address,
            "GET /v1/stream?after=0",
            &headers,
            "",
            Duration::from_secs(10),
        )
    };
    let (lines, sse) = std::thread::scope(|scope| {
        let sse = scope.spawn(|| stream(&["Accept: text/event-stream"]));
        (stream(&[]), sse.join().unwrap())
    });
    assert!(jiff::Timestamp::now().as_second() > exp);
    let found: Vec<Value> = lines
        .body
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (found.len(), &found[0]["project_id"]),
        (2, &"shop".into()),
        "{lines:?}"
    );
    let last = &found[1];
    assert_eq!(
        (&last["end"], &last["position"]),
        (&"token_expired".into(), &2.into()),
        "{last}"
    );
    assert!(
        sse.body
            .contains("event: end\nid: 2\ndata: {\"end\":\"token_expired\""),
        "{sse:?}"
    );
    let again = stream(&[]);
    assert_eq!(again.status, 401, "{again:?}");
    assert!(again.error().contains("expired"), "{again:?}");
}
