mod versions;

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use super::{
    schemas::{SchemaOptions, SchemaSource},
    *,
};

fn write(folder: &Path, name: &str, schema: &Value) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, schema.to_string()).unwrap();
}

fn schemas(folder: &Path) -> CheckOptions {
    CheckOptions {
        schemas: Some(SchemaOptions {
            source: SchemaSource::Folder(folder.to_owned()),
            missing_passes: true,
            on_failure: OnFailure::Reject,
        }),
        ..CheckOptions::default()
    }
}

fn order(version: i32, payload: &Value) -> Event {
    Event::to("shop.order")
        .event_type("OrderPlaced")
        .aggregate("order", "o-1")
        .schema_version(version)
        .json(payload)
        .unwrap()
}

async fn look(checks: &Checks, events: &[Event], memory: &mut Memory) -> Vec<Finding> {
    let events: Vec<_> = (1..).zip(events).collect();
    checks.look(&events, Some(memory)).await.unwrap()
}

async fn errors(checks: &Checks, event: Event) -> Option<String> {
    look(checks, &[event], &mut Memory::default()).await[0].rejection()
}

#[tokio::test]
async fn a_payload_is_held_against_the_schema_of_its_type_and_version() {
    let folder = TempDir::new().unwrap();
    let total = |kind: &str| json!({ "properties": { "total": { "type": kind } }, "required": ["total"] });
    write(folder.path(), "OrderPlaced/1.json", &total("integer"));
    write(folder.path(), "OrderPlaced.v2.json", &total("string"));
    write(folder.path(), "OrderPlaced.json", &total("boolean"));
    write(folder.path(), "README.md", &json!("not a schema"));
    let checks = Checks::new(&schemas(folder.path()), None).unwrap();

    assert_eq!(errors(&checks, order(1, &json!({ "total": 1 }))).await, None);
    assert_eq!(errors(&checks, order(2, &json!({ "total": "1" }))).await, None);
    assert_eq!(errors(&checks, order(7, &json!({ "total": true }))).await, None);
    assert_eq!(
        errors(&checks, order(1, &json!({ "total": "geheim" })))
            .await
            .unwrap(),
        "schema `OrderPlaced/1.json` at /total: the value is not of type `integer`"
    );
    assert_eq!(
        errors(&checks, order(2, &json!({}))).await.unwrap(),
        "schema `OrderPlaced.v2.json` at /: the property `total` is missing"
    );
    let other = Event::to("shop.x").event_type("Other").aggregate("order", "o-1");
    assert_eq!(errors(&checks, other.clone()).await, None);
    let mut strict = schemas(folder.path());
    strict.schemas.as_mut().unwrap().missing_passes = false;
    // A payload that does not match may only cause a warning. A missing schema is a different question.
    for on_failure in [OnFailure::Reject, OnFailure::Warn] {
        strict.schemas.as_mut().unwrap().on_failure = on_failure;
        let checks = Checks::new(&strict, None).unwrap();
        let error = errors(&checks, other.clone()).await.unwrap();
        assert!(error.contains("no schema for `Other`, version 1"), "{error}");
    }
}

#[tokio::test]
async fn no_value_of_a_payload_is_in_an_error() {
    let folder = TempDir::new().unwrap();
    let secret = "4111-geheim";
    for (schema, payload) in [
        (json!({ "type": "integer" }), json!(secret)),
        (json!({ "enum": ["a", "b"] }), json!(secret)),
        (json!({ "const": "a" }), json!(secret)),
        (json!({ "pattern": "^x$" }), json!(secret)),
        (json!({ "format": "date-time", "maxLength": 3 }), json!(secret)),
        (json!({ "not": { "type": "string" } }), json!(secret)),
        (json!({ "anyOf": [{ "type": "null" }] }), json!(secret)),
        (
            json!({ "oneOf": [{ "type": "null" }, { "maxLength": 2 }] }),
            json!(secret),
        ),
        (json!({ "uniqueItems": true }), json!([secret, secret])),
        (json!({ "items": { "type": "integer" } }), json!([1, secret])),
        (
            json!({ "prefixItems": [true], "items": false }),
            json!([1, secret]),
        ),
        (
            json!({ "prefixItems": [true], "unevaluatedItems": false }),
            json!([1, secret]),
        ),
        (json!({ "contains": { "type": "integer" } }), json!([secret])),
        (
            json!({ "propertyNames": { "maxLength": 3 } }),
            json!({ "4111-geheim": 1 }),
        ),
        (json!({ "maxProperties": 0 }), json!({ "a": secret })),
        (
            json!({ "dependentRequired": { "a": ["b"] } }),
            json!({ "a": secret }),
        ),
        (
            json!({ "contentEncoding": "base64", "type": "null" }),
            json!(secret),
        ),
        (json!(false), json!(secret)),
    ] {
        write(folder.path(), "OrderPlaced.json", &schema);
        let checks = Checks::new(&schemas(folder.path()), None).unwrap();
        let error = errors(&checks, order(1, &payload)).await;
        let error = error.unwrap_or_else(|| panic!("{schema} takes {payload}"));
        assert!(!error.contains("4111"), "{schema}: {error}");
    }
}

#[tokio::test]
async fn schemas_refer_to_each_other_and_to_nothing_outside() {
    let folder = TempDir::new().unwrap();
    write(
        folder.path(),
        "OrderPlaced/1.json",
        &json!({ "properties": { "to": { "$ref": "../shared/address.json" } } }),
    );
    write(
        folder.path(),
        "OrderPlaced/2.json",
        &json!({ "$ref": "https://example.org/money" }),
    );
    write(
        folder.path(),
        "shared/address.json",
        &json!({ "required": ["city"] }),
    );
    write(
        folder.path(),
        "shared/money.json",
        &json!({ "$id": "https://example.org/money", "type": "integer" }),
    );
    let checks = Checks::new(&schemas(folder.path()), None).unwrap();
    let error = errors(&checks, order(1, &json!({ "to": {} }))).await.unwrap();
    assert!(
        error.contains("at /to: the property `city` is missing"),
        "{error}"
    );
    assert!(errors(&checks, order(2, &json!("x"))).await.is_some());
    assert_eq!(errors(&checks, order(2, &json!(1))).await, None);

    write(
        folder.path(),
        "OrderPlaced/3.json",
        &json!({ "$ref": "file:///etc/hostname" }),
    );
    let error = Checks::new(&schemas(folder.path()), None)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("OrderPlaced/3.json") && error.contains("nothing is fetched"),
        "{error}"
    );
}

#[test]
fn a_broken_schema_is_refused_with_its_place() {
    for (name, text, problem) in [
        ("A.json", "{\n  \"type\": ,\n}", "line 2 column 11"),
        ("A/1.json", r#"{ "type": "nothing" }"#, "nothing"),
        ("A.json", r#"{ "pattern": "(?=x)y" }"#, "(?=x)y"),
        ("A/b/1.json", "{}", "one folder deep"),
        (
            "A.json",
            &format!("\"{}\"", "x".repeat(2 * 1024 * 1024)),
            "more than 1048576 bytes",
        ),
    ] {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let error = Checks::new(&schemas(folder.path()), None)
            .unwrap_err()
            .to_string();
        assert!(error.contains(problem), "{name}: {error}");
    }
    let folder = TempDir::new().unwrap();
    write(folder.path(), "A/1.json", &json!({}));
    write(folder.path(), "A.v1.json", &json!({}));
    let error = Checks::new(&schemas(folder.path()), None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("is for the same version"), "{error}");
    assert!(Checks::new(&schemas(&folder.path().join("gone")), None).is_err());
}

#[tokio::test]
async fn a_changed_folder_is_read_again_and_a_broken_one_changes_nothing() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "OrderPlaced.json", &json!({ "type": "integer" }));
    let checks = Arc::new(Checks::new(&schemas(folder.path()), None).unwrap());
    let fresh = tokio::spawn({
        let checks = checks.clone();
        async move { checks.keep_fresh(Duration::from_millis(5)).await }
    });
    let until = async |text: &'static str, takes: bool| {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while errors(&checks, order(1, &json!(text))).await.is_none() != takes {
            assert!(tokio::time::Instant::now() < deadline, "{text}: {takes}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    until("long enough", false).await;
    write(folder.path(), "OrderPlaced.json", &json!({ "type": "string" }));
    until("long enough", true).await;
    std::fs::write(folder.path().join("OrderPlaced.json"), "{ broken").unwrap();
    write(folder.path(), "Other.json", &json!({}));
    tokio::time::sleep(Duration::from_millis(100)).await;
    until("long enough", true).await;
    assert!(
        errors(&checks, order(1, &json!(3))).await.is_some(),
        "the last good schemas stay in use"
    );
    write(folder.path(), "OrderPlaced.json", &json!({ "maxLength": 3 }));
    until("long enough", false).await;
    fresh.abort();
}

#[tokio::test]
async fn a_check_that_warns_lets_the_event_pass_and_counts() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "OrderPlaced.json", &json!({ "type": "integer" }));
    let mut options = schemas(folder.path());
    options.schemas.as_mut().unwrap().on_failure = OnFailure::Warn;
    options.rules.push(RuleOptions {
        name: "text".into(),
        event_type: "Order*".into(),
        rule: "payload != 'x'".into(),
        message: Some("an x is no payload".into()),
        on_failure: OnFailure::Warn,
    });
    let checks = Checks::new(&options, None).unwrap();
    let event = order(1, &json!("x"));
    let finding = look(&checks, std::slice::from_ref(&event), &mut Memory::default())
        .await
        .remove(0);
    assert_eq!(finding.rejection(), None);
    let Finding::Failed(failures) = &finding else {
        panic!("{finding:?}");
    };
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert_eq!(failures[1].problem, "an x is no payload");
    checks.warn(&event, &finding);
    assert_eq!(checks.warned(), 2);
}

#[tokio::test]
async fn a_payload_that_is_no_json_fails_and_is_not_shown() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "OrderPlaced.json", &json!(true));
    let checks = Checks::new(&schemas(folder.path()), None).unwrap();
    let event = Event::to("t")
        .event_type("OrderPlaced")
        .aggregate("a", "1")
        .payload("{\"geheim\": tru");
    let error = errors(&checks, event).await.unwrap();
    assert!(
        error.contains("can't be read") && !error.contains("geheim"),
        "{error}"
    );
    let deep = format!("{}1{}", "[".repeat(300), "]".repeat(300));
    assert!(
        errors(
            &checks,
            Event::to("t")
                .event_type("OrderPlaced")
                .aggregate("a", "1")
                .payload(deep)
        )
        .await
        .is_some()
    );
}

#[tokio::test]
async fn a_schema_that_refers_to_itself_does_not_bring_the_relay_down() {
    let folder = TempDir::new().unwrap();
    for schema in [
        json!({ "$ref": "#" }),
        json!({ "allOf": [{ "$ref": "#" }] }),
        json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } }, "$ref": "#/$defs/a" }),
        json!({ "properties": { "a": { "$ref": "#" } }, "required": ["a"] }),
        json!({ "not": { "$ref": "#" } }),
    ] {
        write(folder.path(), "OrderPlaced.json", &schema);
        if let Ok(checks) = Checks::new(&schemas(folder.path()), None) {
            let deep = format!("{}1{}", "{\"a\":".repeat(100), "}".repeat(100));
            let event = Event::to("t")
                .event_type("OrderPlaced")
                .aggregate("a", "1")
                .payload(deep);
            errors(&checks, event).await;
        }
    }
}

#[tokio::test]
async fn a_schema_may_name_its_draft() {
    let folder = TempDir::new().unwrap();
    for draft in [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        let schema = json!({ "$schema": draft, "$id": "https://example.org/order.json", "type": "integer" });
        write(folder.path(), "OrderPlaced.json", &schema);
        let checks = Checks::new(&schemas(folder.path()), None).unwrap();
        assert!(errors(&checks, order(1, &json!("x"))).await.is_some(), "{draft}");
        assert_eq!(errors(&checks, order(1, &json!(1))).await, None, "{draft}");
    }
}

#[test]
fn a_check_that_breaks_off_is_taken_as_the_schemas_are() {
    let folder = TempDir::new().unwrap();
    let mut options = schemas(folder.path());
    let found = |options: &CheckOptions| Checks::new(options, None).unwrap().safely(|| panic!("geheim"));
    let error = found(&options).rejection().unwrap();
    assert_eq!(error, "checks at /: a check crashed on this payload");
    options.schemas.as_mut().unwrap().on_failure = OnFailure::Warn;
    let finding = found(&options);
    assert!(
        matches!(finding, Finding::Failed(_)) && finding.rejection().is_none(),
        "{finding:?}"
    );
    assert!(found(&CheckOptions::default()).rejection().is_some());
}
