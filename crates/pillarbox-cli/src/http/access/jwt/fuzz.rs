//! Changed tokens and sets of keys.

use pillarbox_testkit::{
    fuzz::{self, Fuzz},
    torture::Campaign,
};
use serde_json::json;

use super::{
    keys::Keys,
    tests::{N, RS256, settings},
    *,
};
use crate::http::access::tokens::{Shown, shown};

#[derive(Debug, Clone)]
struct Input {
    header: Vec<u8>,
    token: String,
    jwks: String,
}

fn jwks() -> String {
    let key = json!({ "kty": "RSA", "kid": "rsa", "alg": "RS256", "use": "sig", "n": N, "e": "AQAB" });
    json!({ "keys": [key, { "kty": "EC", "crv": "P-256", "kid": "ec", "x": "AA", "y": "AA" }] }).to_string()
}

fn input(fuzz: &mut Fuzz) -> Input {
    let token = match fuzz.below(4) {
        0 => RS256.to_owned(),
        1 => format!("{}.{}.{}", fuzz.text(), fuzz.text(), fuzz.text()),
        _ => fuzz.mutated_text(RS256),
    };
    Input {
        header: fuzz.mutated(format!("Bearer {token}").as_bytes()),
        jwks: if fuzz.one_in(3) {
            fuzz.mutated_text(&jwks())
        } else {
            jwks()
        },
        token,
    }
}

/// Only the original claims are ever accepted.
#[test]
fn torture_fuzz_tokens() {
    let campaign = Campaign::begin("fuzz_tokens");
    signatures::install();
    let settings = settings();
    fuzz::each(&campaign, input, move |input| {
        if let Ok(value) = axum::http::HeaderValue::from_bytes(&input.header) {
            let headers = [(axum::http::header::AUTHORIZATION, value)].into_iter().collect();
            if let Shown::Token(token) = shown(&headers) {
                assert!(!token.is_empty());
            }
        }
        let (Ok(keys), Ok(header)) = (Keys::read(input.jwks.as_bytes()), header(&input.token)) else {
            return;
        };
        let Some(key) = keys.find(header.kid.as_deref()) else {
            return;
        };
        if let Ok(claims) = claims(&settings, key, &input.token) {
            assert_eq!((&input.token[..], &claims["sub"]), (RS256, &"ci".into()));
        }
    });
}
