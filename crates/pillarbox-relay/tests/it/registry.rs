//! Schemas from a registry, tested with a stub of its HTTP API.

use std::time::Duration;

use pillarbox::Event;
use pillarbox_relay::check::{
    CheckOptions, Checks, Finding, OnFailure,
    registry::{RegistryOptions, WhenAway},
    schemas::{SchemaOptions, SchemaSource},
};
use pillarbox_testkit::{
    schema_registry_stub::{Manner, SchemaRegistryStub},
    wait,
};
use serde_json::json;

const INTEGER: &str = r#"{ "type": "integer" }"#;
const DEADLINE: Duration = Duration::from_secs(30);

fn checks(url: String, adjust: impl FnOnce(&mut RegistryOptions)) -> Checks {
    checks_that(OnFailure::Reject, url, adjust)
}

fn checks_that(on_failure: OnFailure, url: String, adjust: impl FnOnce(&mut RegistryOptions)) -> Checks {
    let mut registry = RegistryOptions::new(url);
    adjust(&mut registry);
    let options = CheckOptions {
        schemas: Some(SchemaOptions {
            source: SchemaSource::Registry(registry),
            missing_passes: false,
            on_failure,
        }),
        ..CheckOptions::default()
    };
    Checks::new(&options, None).unwrap()
}

fn event(event_type: &str, payload: &str) -> Event {
    Event::to("shop.orders")
        .event_type(event_type)
        .aggregate("order", "1")
        .json(&json!(payload))
        .unwrap()
}

async fn look(checks: &Checks, events: &[Event]) -> Vec<Finding> {
    let events: Vec<_> = (1..).zip(events).collect();
    checks.look(&events, None).await.unwrap()
}

async fn one(checks: &Checks, event_type: &str) -> Finding {
    look(checks, &[event(event_type, "geheim")]).await.remove(0)
}

#[tokio::test]
async fn a_schema_is_asked_for_once_and_applied() {
    let stub = SchemaRegistryStub::start().await.unwrap();
    stub.put("Placed", 1, INTEGER);
    let checks = checks(stub.url(), |_| {});
    for _ in 0..3 {
        let findings = look(&checks, &vec![event("Placed", "geheim"); 50]).await;
        let error = findings[49].rejection().unwrap();
        assert_eq!(
            error,
            "schema `Placed, version 1` at /: the value is not of type `integer`"
        );
    }
    let missing = one(&checks, "Unknown").await.rejection().unwrap();
    assert!(missing.contains("no schema for `Unknown`"), "{missing}");
    one(&checks, "Unknown").await;
    assert_eq!(
        stub.requests(),
        ["/subjects/Placed/versions/1", "/subjects/Unknown/versions/1"]
    );
}

#[tokio::test]
async fn the_subject_is_made_from_the_event_and_can_hold_anything() {
    let stub = SchemaRegistryStub::start().await.unwrap();
    let checks = checks(format!("{}/api/", stub.url()), |options| {
        options.subject = "{topic}/{event_type}-value".into();
    });
    one(&checks, "A B?#").await;
    assert_eq!(
        stub.requests(),
        ["/api/subjects/shop.orders%2FA%20B%3F%23-value/versions/1"]
    );
}

#[tokio::test]
async fn an_unusable_schema_rejects_events_and_is_reported() {
    let stub = SchemaRegistryStub::start().await.unwrap();
    stub.put_as("AVRO", "Avro", 1, "\"int\"");
    stub.put_as("PROTOBUF", "Protobuf", 1, "message X {}");
    stub.put("Broken", 1, "{ \"type\": ");
    stub.put("Elsewhere", 1, r#"{ "$ref": "http://127.0.0.1:1/x.json" }"#);
    let checks = checks(stub.url(), |_| {});
    for (event_type, part) in [
        ("Avro", "of type AVRO"),
        ("Protobuf", "of type PROTOBUF"),
        ("Broken", "not JSON"),
        ("Elsewhere", "nothing is fetched"),
    ] {
        let error = one(&checks, event_type).await.rejection().unwrap();
        assert!(error.contains(part) && error.contains(event_type), "{error}");
    }
}

#[tokio::test]
async fn while_it_is_away_the_policy_decides_and_it_is_not_asked_for_each_event() {
    let stub = SchemaRegistryStub::start().await.unwrap();
    stub.put("Known", 1, INTEGER);
    for manner in [
        Manner::Away,
        Manner::Status(500),
        Manner::Garbage,
        Manner::Slow(DEADLINE),
        Manner::Status(401),
    ] {
        for when_away in [WhenAway::Wait, WhenAway::Pass, WhenAway::Reject] {
            stub.behave(Manner::Answers);
            let checks = checks(stub.url(), |options| {
                options.when_away = when_away;
                options.timeout = Duration::from_millis(200);
            });
            one(&checks, "Known").await;
            stub.behave(manner);
            let asked = stub.requests().len();
            for _ in 0..20 {
                let finding = one(&checks, "New").await;
                match when_away {
                    WhenAway::Wait => assert!(matches!(finding, Finding::Wait { .. }), "{finding:?}"),
                    WhenAway::Pass => assert_eq!(finding, Finding::Pass),
                    WhenAway::Reject => assert!(finding.rejection().unwrap().contains("is away")),
                }
                let known = one(&checks, "Known").await.rejection();
                assert!(
                    known.unwrap().contains("integer"),
                    "known schemas must stay in use"
                );
            }
            let asked = stub.requests().len() - asked;
            assert!(
                asked <= 5,
                "{manner:?}: the registry got {asked} requests for 20 events"
            );
            assert!(checks.registry_down().is_some());
        }
    }
}

#[tokio::test]
async fn when_it_is_back_it_is_asked_again() {
    let stub = SchemaRegistryStub::start().await.unwrap();
    stub.put("New", 1, INTEGER);
    stub.behave(Manner::Away);
    let checks = checks(stub.url(), |_| {});
    assert!(matches!(one(&checks, "New").await, Finding::Wait { .. }));
    stub.behave(Manner::Answers);
    wait::until("the registry gets a request again", async || {
        !matches!(one(&checks, "New").await, Finding::Wait { .. })
    })
    .await;
    assert!(one(&checks, "New").await.rejection().is_some());
    assert_eq!(checks.registry_down(), None);
}

#[tokio::test]
async fn its_password_goes_to_it_and_nowhere_else() {
    let stub = SchemaRegistryStub::start().await.unwrap();
    stub.put("Placed", 1, INTEGER);
    // This is app:ge:heim in base64.
    stub.demand("Basic YXBwOmdlOmhlaW0=");
    let good = checks(stub.url_with("app:ge%3Aheim"), |_| {});
    assert!(
        one(&good, "Placed")
            .await
            .rejection()
            .unwrap()
            .contains("integer")
    );
    let bad = checks(stub.url_with("app:falsch"), |_| {});
    let Finding::Wait { error, .. } = one(&bad, "Placed").await else {
        panic!("the registry answers 401, so the event must wait");
    };
    assert!(
        error.contains("401") && error.contains("user and password"),
        "{error}"
    );
    let gone = checks("http://app:falsch@127.0.0.1:1".into(), |_| {});
    let Finding::Wait { error: gone, .. } = one(&gone, "Placed").await else {
        panic!("no registry is there, so the event must wait");
    };
    assert!(
        !error.contains("falsch") && !gone.contains("falsch"),
        "{error} {gone}"
    );
}

#[tokio::test]
async fn when_away_reject_also_holds_with_on_failure_warn() {
    let stub = SchemaRegistryStub::start().await.unwrap();
    stub.behave(Manner::Away);
    let checks = checks_that(OnFailure::Warn, stub.url(), |options| {
        options.when_away = WhenAway::Reject;
    });
    assert!(one(&checks, "New").await.rejection().unwrap().contains("is away"));
}

#[tokio::test]
async fn that_there_is_no_schema_holds_while_it_is_away() {
    let stub = SchemaRegistryStub::start().await.unwrap();
    stub.put_as("AVRO", "Avro", 1, "\"int\"");
    let checks = checks(stub.url(), |_| {});
    let known = [("None", "no schema for `None`"), ("Avro", "of type AVRO")];
    for (event_type, part) in known {
        let error = one(&checks, event_type).await.rejection().unwrap();
        assert!(error.contains(part), "{error}");
    }
    stub.behave(Manner::Away);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    // The first look finds out that the registry is away. The second one knows it already.
    for _ in 0..2 {
        for (event_type, part) in known {
            let finding = one(&checks, event_type).await;
            let error = finding.rejection().unwrap_or_else(|| panic!("{finding:?}"));
            assert!(error.contains(part), "{error}");
        }
    }
    assert!(checks.registry_down().is_some());
    assert!(matches!(one(&checks, "New").await, Finding::Wait { .. }));
}

#[tokio::test]
async fn when_it_is_back_it_is_known_also_if_no_event_needs_it() {
    let stub = SchemaRegistryStub::start().await.unwrap();
    stub.behave(Manner::Away);
    let checks = checks(stub.url(), |options| options.when_away = WhenAway::Pass);
    assert_eq!(one(&checks, "New").await, Finding::Pass);
    assert!(checks.registry_down().is_some());
    stub.behave(Manner::Answers);
    wait::until("it is back", async || checks.registry_down().is_none()).await;
}

#[tokio::test]
async fn slow_answers_are_not_awaited_and_are_used_later() {
    let stub = SchemaRegistryStub::start().await.unwrap();
    let types: Vec<String> = (0..40).map(|number| format!("Type{number}")).collect();
    for event_type in &types {
        stub.put(event_type, 1, INTEGER);
    }
    stub.behave(Manner::Slow(Duration::from_millis(700)));
    // A schema that has not arrived yet is not an outage, so no event may be rejected.
    let checks = checks(stub.url(), |options| options.when_away = WhenAway::Reject);
    let events: Vec<_> = types.iter().map(|name| event(name, "geheim")).collect();
    let waits = |finding: &Finding| matches!(finding, Finding::Wait { .. });
    let findings = look(&checks, &events).await;
    assert!(findings.iter().any(waits), "the look waited for all schemas");
    assert!(
        !findings.iter().all(waits),
        "schemas that arrived in time must be used at once"
    );
    wait::until("all schemas are requested", async || {
        let findings = look(&checks, &events).await;
        for finding in findings.iter().filter(|finding| !waits(finding)) {
            assert!(finding.rejection().unwrap().contains("integer"), "{finding:?}");
        }
        !findings.iter().any(waits)
    })
    .await;
    assert_eq!(checks.registry_down(), None);
    assert_eq!(stub.requests().len(), types.len(), "each once");
}
