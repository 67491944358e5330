//! The HTTP server, and what is shown of addresses.

use super::*;

const JWT: &str = "issuer: i, audience: a";

fn jwt(more: &str) -> String {
    format!("outbox:\n  http: {{ jwt: {{ {JWT}, {more} }} }}\n")
}

#[test]
fn keys_of_an_issuer_come_with_tls_or_from_this_machine() {
    for url in [
        "http://id.example/jwks",
        "http://10.0.0.1/jwks",
        "http://localhost.example/jwks",
    ] {
        let text = problems(&jwt(&format!("jwks_url: '{url}'")));
        assert!(
            text.starts_with("a.yaml:2: ") && text.contains("without TLS") && text.contains("jwks_file"),
            "{text}"
        );
    }
    for url in [
        "https://id.example/jwks",
        "http://127.0.0.1:8080/jwks",
        "http://[::1]/jwks",
        "http://localhost/jwks",
    ] {
        assert!(settings_of(&jwt(&format!("jwks_url: '{url}'"))).is_ok(), "{url}");
    }
    assert!(problems(&jwt("jwks_url: 'ftp://id.example'")).contains("not an address"));
}

#[test]
fn parameters_that_look_like_secrets_are_masked() {
    for (given, shown) in [
        (
            "https://h/x?apikey=geheim&page=2",
            "https://h/x?apikey=***&page=2",
        ),
        ("https://h/x?api_key=geheim", "https://h/x?api_key=***"),
        ("https://h/x?API-Key=geheim", "https://h/x?API-Key=***"),
        ("https://h/x?key=geheim", "https://h/x?key=***"),
        ("https://h/x?access%5Fkey=geheim", "https://h/x?access%5Fkey=***"),
        ("https://h/x?auth=geheim", "https://h/x?auth=***"),
        ("https://h/x?sv=1&sig=geheim", "https://h/x?sv=1&sig=***"),
        ("https://h/x?X-Signature=geheim", "https://h/x?X-Signature=***"),
        (
            "https://h/x?access_token=ge#heim",
            "https://h/x?access_token=***#***",
        ),
        ("https://geheim@h/x?page=2", "https://***@h/x?page=2"),
        ("nats://a:1,b:2?token=geheim", "nats://a:1,nats://b:2?token=***"),
        ("kafka://a:1,b:2?sasl=plain", "kafka://a:1,kafka://b:2?sasl=plain"),
        (
            "postgres://app@a/shop?sslmode=require",
            "postgres://app@a/shop?sslmode=require",
        ),
    ] {
        assert_eq!(address(given), shown);
    }
    let text = jwt("jwks_url: 'https://h/jwks?apikey=geheim'");
    let (shown, value) = in_force(&load_text(&text, &[]).unwrap().config).unwrap();
    assert!(
        shown.contains("apikey=***") && !format!("{shown}{value}").contains("geheim"),
        "{shown}"
    );
}

#[test]
fn a_claim_that_lifts_the_scope_needs_one_that_sets_it() {
    let file = "jwks_file: a.json, unscoped_claim: all";
    let text = problems(&jwt(file));
    assert!(
        text.contains("unscoped_claim") && text.contains("`project_claim`"),
        "{text}"
    );
    let settings = settings_of(&jwt(&format!("{file}, user_claim: user"))).unwrap();
    assert_eq!(settings.http.jwt.unwrap().unscoped_claim.as_deref(), Some("all"));
}

#[test]
fn the_name_of_a_token_cant_be_that_of_another_kind_of_caller() {
    let token = |name: &str| {
        let sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        format!("outbox:\n  http: {{ tokens: [{{ name: '{name}', sha256: {sha256}, roles: [read] }}] }}\n")
    };
    assert!(settings_of(&token("ops")).is_ok());
    for name in ["jwt:zoe", "cert:laptop", "a:b"] {
        let text = problems(&token(name));
        assert!(text.contains("must not contain `:`"), "{text}");
    }
}
