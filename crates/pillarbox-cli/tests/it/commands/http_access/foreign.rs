//! Requests that are refused whoever sends them, and what every answer has.

use super::*;

#[test]
fn requests_of_other_sites_and_other_names_are_refused_and_answers_are_hardened() {
    let folder = migrated();
    configure(
        folder.path(),
        &json!({ "listen": "127.0.0.1:0", "hosts": ["pillarbox.example"] }),
    );
    let served = Served::start(folder.path(), &["run"]);
    let status = |headers: &[&str]| {
        let answer = ask(&served.address, "GET /v1/status", headers, "", DEADLINE);
        if answer.status != 200 {
            assert!(!answer.error().is_empty());
        }
        answer.status
    };
    assert_eq!(status(&[HOST]), 200);
    assert_eq!(status(&["Host: pillarbox.example"]), 200);
    assert_eq!(status(&["Host: evil.example"]), 421);
    assert_eq!(status(&[HOST, HOST]), 400);
    assert_eq!(status(&[]), 400);
    assert_eq!(status(&[HOST, "Origin: https://evil.example"]), 403);
    assert_eq!(status(&[HOST, "Origin: null"]), 403);
    assert_eq!(status(&[HOST, "Sec-Fetch-Site: cross-site"]), 403);
    assert_eq!(
        status(&[HOST, "Origin: http://localhost", "Sec-Fetch-Site: same-origin"]),
        200
    );

    for (request, expected) in [
        ("GET /", 200),
        ("GET /livez", 200),
        ("GET /v1/nothing", 404),
        ("DELETE /v1/status", 405),
        ("POST /v1/events", 415),
        ("GET /v1/dead?limit=x", 400),
        ("GET /v1/dead/x", 404),
        ("GET /v1/dead/a%00", 400),
        ("GET /v1/stream?after=x", 400),
    ] {
        let answer = ask(&served.address, request, &[HOST], "", DEADLINE);
        assert_eq!(answer.status, expected, "{request}: {answer:?}");
        for line in [
            "x-content-type-options: nosniff",
            "cross-origin-resource-policy: same-origin",
            "content-security-policy: default-src 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(answer.head.contains(line), "{request}: {answer:?}");
        }
        if expected >= 400 {
            assert!(!answer.error().is_empty(), "{request}");
        }
        if expected == 405 {
            assert!(answer.head.contains("allow: get,head"), "{answer:?}");
        }
    }
}
