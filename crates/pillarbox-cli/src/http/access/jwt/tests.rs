//! Tokens of an issuer, with keys and signatures made by OpenSSL and by ring.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use serde_json::json;

use super::{keys::Keys, *};
use crate::config::KeySource;

/// The modulus of a key of OpenSSL, and two tokens that it signed. They expire in 2100.
pub(super) const N: &str = "\
    0FybwLLpJjBZiiAhXZEjUILKbZgBN9CHoFaKCret_Cb4c-n3sXULnH3c-5RkpTO5XUe-BXiA2tsJ6wA3UwUjXkG13mfigrkR7O8lrU5r\
    xmFyjK7VC1xgry2EnM_SLuwbRszKZD8rXeBhh7XhonpZpRWbXbn5dPQsyRkFZ15DPyPJdzts7K0NrlP0VAGZM9SKNangHqeht55r5n9_\
    UiB5u49PqqpLXIMDKRmoanHWpYQAoFAATDhXsi6cxD12YIPpFCxVrDaAXTnuGMcHRrf-EsVzxCV9W8k7tN3NCZJs4KAdxUwkzfAug5JA\
    Yly99KjD0dkzVnvBXCOfQiB8els4Dw";
pub(super) const RS256: &str = "\
    eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYSJ9.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjoicGlsbGFyYm94Iiw\
    ic3ViIjoiY2kiLCJleHAiOjQxMDI0NDQ4MDAsInJvbGVzIjpbInJlYWQiLCJ1bmtub3duIl19.pHNdgL80uYIkKM_60lAF4ONypEIr8p\
    Wld6jYC8V9BkfBcJ2rO8wq62mcDUmxthDCPd-CQWFHRQK_lOdw3qP5FGsI-qWeTjxsmP3NY-hB6F8-A3kO7qEJzgw3e9M1b3hArfZeoV\
    QDJJjl_mRd6FsSTjPJIS3hCDxl-4d48TIhZXuPyo4a77xP8rM1SzwczoaN7Ipg6Bee0-4MIf-r6bU9xCeUCxWISuUu7cRDX_D0r-Asci\
    JuRCpTGDKiOY_OcVE47J89Qu9mT_ZD1GYLuNnA6qj3RsKjy01eJjXuV8TFj1OLafjuTz3jiHI0ZGmmK3Pmii7gVzgRDdtbl3bv5c01sw";
const PS256: &str = "\
    eyJhbGciOiJQUzI1NiIsImtpZCI6InJzYSJ9.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjoicGlsbGFyYm94Iiw\
    ic3ViIjoiY2kiLCJleHAiOjQxMDI0NDQ4MDAsInJvbGVzIjpbInJlYWQiLCJ1bmtub3duIl19.l6JlgsUWSydOYxpjyaP4G3g1-fbzIX\
    g0pybWFbOYWi-ZWe9L7WOvxxgG53rL_sPQTNSBudn4cGSbqjYhCvjx-UL3TDI-nTvxWNb3i1cvgikAfN-y97ZLvx1r-4UOEktgwf4kNa\
    Zwq-WAdpcbvdAT7jkkXdOl7oaZOkcgulJUxeHoVrh4oS7CTgtHAqolgcrmLu4YxQsbmRwxQbU6N67PKPFWDgH1E5iQZTToDS6tKwuXOK\
    501PO8GJyV-QOcjO9GhPZuimcO_kIe18CJNd8MgPC9gVokIzDyp5ApbB-2Gx3SjCwJeZaTVEhyJkIqEXFgx2GBUi3vMum6Vvv13agrzg";

pub(super) fn settings() -> JwtSettings {
    JwtSettings {
        keys: KeySource::File("jwks.json".into()),
        issuer: "https://issuer.example".into(),
        audience: "pillarbox".into(),
        name_claim: "sub".into(),
        roles_claim: "roles".into(),
        project_claim: None,
        user_claim: None,
        unscoped_claim: None,
        refresh: Duration::from_secs(300),
        leeway: Duration::from_secs(30),
    }
}

/// The name of the caller, or why it is refused.
fn name(settings: &JwtSettings, jwks: &Value, token: &str) -> Result<String, String> {
    signatures::install();
    let keys = Keys::read(jwks.to_string().as_bytes())?;
    let header = header(token).map_err(|problem| format!("{problem:?}"))?;
    let key = keys.find(header.kid.as_deref()).ok_or("no such key")?;
    let claims = claims(settings, key, token).map_err(|kind| format!("{kind:?}"))?;
    caller(settings, &claims).map(|caller| caller.name().to_owned())
}

fn rsa(more: &Value) -> Value {
    let mut key = json!({ "kty": "RSA", "kid": "rsa", "n": N, "e": "AQAB" });
    key.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({ "keys": [key] })
}

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

struct Issuer(EcdsaKeyPair);

impl Issuer {
    fn new() -> Self {
        let (curve, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let key = EcdsaKeyPair::generate_pkcs8(curve, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(curve, key.as_ref(), &random).unwrap())
    }

    fn jwks(&self) -> Value {
        let point = self.0.public_key().as_ref();
        let part = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "ec", "use": "sig", "x": part(&point[1..33]), "y": part(&point[33..]) }] })
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encoded(header), encoded(claims));
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn es256() -> Value {
    json!({ "alg": "ES256", "kid": "ec" })
}

/// Claims of a good token, with some of them changed. `null` leaves one out.
fn claims_with(change: &Value) -> Value {
    let mut claims = json!({
        "iss": "https://issuer.example", "aud": ["other", "pillarbox"], "sub": "ci", "roles": "read produce",
        "exp": Timestamp::now().as_second() + 60,
    });
    let map = claims.as_object_mut().unwrap();
    map.extend(change.as_object().unwrap().clone());
    map.retain(|_, value| !value.is_null());
    claims
}

#[test]
fn a_key_is_used_for_its_own_algorithm_only() {
    let settings = settings();
    let with = |alg: &str, token| name(&settings, &rsa(&json!({ "alg": alg })), token);
    assert_eq!(with("RS256", RS256), Ok("jwt:ci".into()));
    assert_eq!(with("PS256", PS256), Ok("jwt:ci".into()));
    assert_eq!(with("RS256", PS256), Err("InvalidAlgorithm".into()));
    assert_eq!(with("PS256", RS256), Err("InvalidAlgorithm".into()));
    assert_eq!(name(&settings, &rsa(&json!({})), RS256), Ok("jwt:ci".into()));
    assert_eq!(
        name(&settings, &rsa(&json!({})), PS256),
        Err("InvalidAlgorithm".into())
    );
    for useless in [
        json!({ "alg": "HS256" }),
        json!({ "alg": "ES256" }),
        json!({ "use": "enc" }),
        json!({ "key_ops": ["encrypt"] }),
    ] {
        assert!(
            Keys::read(rsa(&useless).to_string().as_bytes()).is_err(),
            "{useless}"
        );
    }
    let secret = json!({ "keys": [{ "kty": "oct", "kid": "s", "k": "c2VjcmV0" }] });
    assert!(Keys::read(secret.to_string().as_bytes()).is_err());
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
    let jwks = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "x": x }] });
    let message = format!(
        "{}.{}",
        encoded(&json!({ "alg": "EdDSA" })),
        encoded(&claims_with(&json!({})))
    );
    let signature = URL_SAFE_NO_PAD.encode(pair.sign(message.as_bytes()));
    assert_eq!(
        name(&settings, &jwks, &format!("{message}.{signature}")),
        Ok("jwt:ci".into())
    );
}

#[test]
fn only_a_valid_token_for_us_is_accepted() {
    let (issuer, settings) = (Issuer::new(), settings());
    let with = |change: Value| {
        name(
            &settings,
            &issuer.jwks(),
            &issuer.token(&es256(), &claims_with(&change)),
        )
    };
    let now = Timestamp::now().as_second();
    assert_eq!(with(json!({})), Ok("jwt:ci".into()));
    assert_eq!(
        with(json!({ "exp": now - 10 })),
        Ok("jwt:ci".into()),
        "within the leeway"
    );
    assert_eq!(
        with(json!({ "nbf": now + 10 })),
        Ok("jwt:ci".into()),
        "within the leeway"
    );
    for (change, why) in [
        (json!({ "exp": now - 90 }), "ExpiredSignature"),
        (json!({ "exp": null }), "MissingRequiredClaim"),
        (json!({ "exp": "tomorrow" }), "Claim"),
        (json!({ "nbf": now + 90 }), "ImmatureSignature"),
        (json!({ "nbf": "yesterday" }), "Claim"),
        (json!({ "iss": "https://evil.example" }), "InvalidIssuer"),
        (json!({ "iss": null }), "MissingRequiredClaim"),
        (json!({ "aud": "other" }), "InvalidAudience"),
        (json!({ "aud": null }), "MissingRequiredClaim"),
        (json!({ "sub": null }), "its claim `sub` is missing"),
        (json!({ "sub": 7 }), "its claim `sub` is missing"),
        (json!({ "sub": "a\nb" }), "its claim `sub` is missing"),
        (json!({ "sub": "a\u{202e}b" }), "its claim `sub` is missing"),
        (json!({ "sub": "x".repeat(201) }), "its claim `sub` is missing"),
    ] {
        let refused = with(change.clone()).unwrap_err();
        assert!(refused.contains(why), "{change}: {refused}");
    }
    let stranger = Issuer::new().token(&es256(), &claims_with(&json!({})));
    assert_eq!(
        name(&settings, &issuer.jwks(), &stranger),
        Err("InvalidSignature".into())
    );
    for alg in ["none", "HS256", "ES384", "RS256"] {
        let token = issuer.token(&json!({ "alg": alg, "kid": "ec" }), &claims_with(&json!({})));
        assert!(name(&settings, &issuer.jwks(), &token).is_err(), "{alg}");
        let unsigned = format!("{}.", token.rsplit_once('.').unwrap().0);
        assert!(name(&settings, &issuer.jwks(), &unsigned).is_err(), "{alg}");
    }
    let other = issuer.token(&json!({ "alg": "ES256", "kid": "x" }), &claims_with(&json!({})));
    assert_eq!(name(&settings, &issuer.jwks(), &other), Err("no such key".into()));
}

#[test]
fn a_token_with_an_extension_that_must_be_understood_is_refused() {
    let (issuer, settings) = (Issuer::new(), settings());
    let with = |crit: Value| {
        let mut header = es256();
        header["crit"] = crit;
        name(
            &settings,
            &issuer.jwks(),
            &issuer.token(&header, &claims_with(&json!({}))),
        )
    };
    for crit in [json!(["exp"]), json!(["b64"]), json!([])] {
        let refused = with(crit.clone()).unwrap_err();
        assert!(refused.contains("`crit`"), "{crit}: {refused}");
    }
    assert!(with(json!("exp")).is_err());
}

#[test]
fn claims_give_roles_and_scope_and_a_missing_scope_is_refused() {
    let settings = JwtSettings {
        roles_claim: "realm_access.roles".into(),
        project_claim: Some("https://x/project".into()),
        user_claim: Some("user".into()),
        unscoped_claim: Some("realm_access.unscoped".into()),
        ..settings()
    };
    let of = |claims: Value| caller(&settings, claims.as_object().unwrap());
    let found = of(json!({
        "sub": "zoe", "realm_access": { "roles": ["read", "emperor", 7] }, "https://x/project": "shop", "user": "u-1",
    }));
    assert_eq!(
        found,
        Ok(Caller::new("jwt:zoe", &[Role::Read], Some("shop"), Some("u-1")))
    );
    let words = json!({ "sub": "zoe", "realm_access": { "roles": "operate email" }, "https://x/project": "shop", "user": "u-1" });
    assert!(of(words).unwrap().may(Role::Operate));
    for scope in [json!(null), json!(""), json!(7), json!(["shop"])] {
        let claims = json!({ "sub": "zoe", "https://x/project": scope, "user": "u-1" });
        assert!(of(claims).is_err(), "{scope}");
    }
    // Names are only names.
    let star = json!({ "sub": "zoe", "https://x/project": "*", "user": "*" });
    assert_eq!(of(star), Ok(Caller::new("jwt:zoe", &[], Some("*"), Some("*"))));
}

#[test]
fn only_a_claim_of_its_own_that_is_true_lifts_the_scope() {
    let settings = |unscoped: Option<&str>| JwtSettings {
        project_claim: Some("project".into()),
        user_claim: Some("user".into()),
        unscoped_claim: unscoped.map(str::to_owned),
        ..settings()
    };
    let of = |unscoped, claims: Value| caller(&settings(unscoped), claims.as_object().unwrap());
    let named = "access.all_projects";
    let lifted = of(
        Some(named),
        json!({ "sub": "ops", "access": { "all_projects": true } }),
    );
    assert_eq!(lifted, Ok(Caller::new("jwt:ops", &[], None, None)));
    for value in [
        json!("true"),
        json!(1),
        json!(false),
        json!(null),
        json!([true]),
        json!("*"),
    ] {
        let access = json!({ "all_projects": value });
        let scoped = json!({ "sub": "ops", "project": "shop", "user": "u-1", "access": access });
        assert_eq!(
            of(Some(named), scoped),
            Ok(Caller::new("jwt:ops", &[], Some("shop"), Some("u-1"))),
            "{value}"
        );
        assert!(
            of(Some(named), json!({ "sub": "ops", "access": access })).is_err(),
            "{value}"
        );
    }
    let unnamed = json!({ "sub": "ops", "unscoped": true, "access": { "all_projects": true } });
    assert!(of(None, unnamed).is_err());
}

#[test]
fn a_caller_ends_when_its_token_is_refused() {
    let settings = settings();
    let (issuer, now) = (Issuer::new(), Timestamp::now());
    let claims = claims_with(&json!({ "exp": now.as_second() + 60 }));
    let found = caller(&settings, claims.as_object().unwrap()).unwrap();
    let left = found.time_left(now).unwrap();
    assert!(
        (Duration::from_secs(90)..=Duration::from_secs(91)).contains(&left),
        "{left:?}"
    );
    // The token is accepted in the second before, with the leeway.
    let at_the_end = claims_with(&json!({ "exp": now.as_second() - 28 }));
    assert!(name(&settings, &issuer.jwks(), &issuer.token(&es256(), &at_the_end)).is_ok());
    let expires = |exp: Value| {
        let claims = json!({ "sub": "zoe", "exp": exp });
        caller(&settings, claims.as_object().unwrap())
            .unwrap()
            .time_left(now)
    };
    assert_eq!(expires(json!(1e300)), None);
    assert_eq!(expires(json!(-1e300)), None);
    assert_eq!(expires(json!(0.5)), Some(Duration::ZERO));
}

#[test]
fn a_set_of_keys_has_a_limit_and_strange_keys_are_left_out() {
    let issuer = Issuer::new().jwks();
    let key = &issuer["keys"][0];
    let read = |keys: Vec<Value>| Keys::read(json!({ "keys": keys }).to_string().as_bytes());
    assert!(read(vec![json!({}), json!(7), json!({ "kty": "future" }), key.clone()]).is_ok());
    assert!(read(vec![key.clone(); 101]).is_err());
    assert!(Keys::read(b"[]").is_err());
    let two = read(vec![key.clone(), rsa(&json!({}))["keys"][0].clone()]).unwrap();
    assert!(two.find(None).is_none(), "which of them?");
    assert!(two.find(Some("rsa")).is_some());
}
