//! The catalogue of kinds of events, on the command line and over HTTP.

use serde_json::json;

use super::{dead_http::Served, *};

const EVENTS: &str = concat!(
    r#"{"topic":"shop.order","event_type":"OrderPlaced","schema_version":2,"aggregate_type":"order","aggregate_id":"1","payload":{"name":"Ada","total":990,"lines":[{"sku":"geheim"}]}}"#,
    "\n",
    r#"{"topic":"shop.order","event_type":"OrderPlaced","schema_version":2,"aggregate_type":"order","aggregate_id":"2","payload":{"name":"Grace","total":7,"lines":[]}}"#,
    "\n",
    r#"{"topic":"lost.x","event_type":"Lost","aggregate_type":"order","aggregate_id":"3","payload":"geheim"}"#,
    "\n",
);

/// An outbox with three events, a route for two of them, and a schema for those.
fn shop() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("schemas/OrderPlaced")).unwrap();
    std::fs::write(
        folder.path().join("schemas/OrderPlaced/2.json"),
        r#"{"type":"object"}"#,
    )
    .unwrap();
    let text = "outbox:\n  sinks:\n    out: { url: \"null:\" }\n  routes: [{ topic: \"shop.>\", sink: out, stream: SHOP }]\n  \
                validation: { enable_schema_validation: true, schema_folder: schemas, schema_missing: pass }\n  \
                http: { listen: \"127.0.0.1:0\" }\n";
    std::fs::write(folder.path().join("pillarbox.yaml"), text).unwrap();
    assert_eq!(code(&run(folder.path(), &["migrate"])), 0);
    let written = run_with_input(folder.path(), &["enqueue", "--ndjson"], EVENTS);
    assert_eq!(code(&written), 0, "{}", stderr(&written));
    folder
}

#[test]
fn the_catalogue_shows_the_sink_of_each_kind_and_no_value() {
    let folder = shop();
    let output = run(folder.path(), &["catalog", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let catalog = json(&output);
    assert_eq!(
        (&catalog["looked_at"], &catalog["more"]),
        (&json!(3), &json!(false))
    );
    let kinds = catalog["kinds"].as_array().unwrap();
    assert_eq!(kinds.len(), 2);
    let placed = &kinds[0];
    assert_eq!(
        (&placed["event_type"], &placed["schema_version"]),
        (&json!("OrderPlaced"), &json!(2))
    );
    assert_eq!(
        (&placed["topic"], &placed["count"]),
        (&json!("shop.order"), &json!(2))
    );
    assert_eq!(
        (&placed["sink"], &placed["stream"]),
        (&json!("out"), &json!("SHOP"))
    );
    assert_eq!(placed["schema"], json!("OrderPlaced/2.json"));
    assert_eq!(
        placed["example"],
        json!({"name": "string", "total": 0, "lines": []})
    );
    assert!(placed["per_second"].as_f64().unwrap() > 0.0);
    let lost = &kinds[1];
    assert_eq!((&lost["sink"], &lost["schema"]), (&Value::Null, &Value::Null));
    assert_eq!(lost["example"], json!("string"));

    let latest = json(&run(folder.path(), &["catalog", "--json", "--last", "1"]));
    assert_eq!(
        (&latest["looked_at"], latest["kinds"].as_array().unwrap().len()),
        (&json!(1), 1)
    );

    let output = run(folder.path(), &["catalog", "--example"]);
    let text = stdout(&output);
    for part in [
        "OrderPlaced",
        "out/SHOP",
        "OrderPlaced/2.json",
        "no route",
        "none",
        "\"total\": 0",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("geheim") && !text.contains("Grace"), "{text}");
    assert!(
        stderr(&output).contains("Seen among the latest 3 events"),
        "{}",
        stderr(&output)
    );
    assert_eq!(code(&run(folder.path(), &["catalog", "--last", "0"])), 2);
}

#[test]
fn the_catalogue_is_served() {
    let folder = shop();
    let served = Served::start(folder.path(), &["run"]);
    let (status, catalog) = served.get("/v1/catalog");
    assert_eq!(status, 200, "{catalog}");
    assert_eq!(catalog["kinds"][0]["schema"], json!("OrderPlaced/2.json"));
    assert_eq!(catalog["kinds"][0]["stream"], json!("SHOP"));
    assert!(!catalog.to_string().contains("geheim"), "{catalog}");
    for wrong in ["?last=0", "?last=100001", "?last=x", "?lats=1"] {
        let (status, problem) = served.get(&format!("/v1/catalog{wrong}"));
        assert_eq!(status, 400, "{wrong}");
        assert!(
            problem["error"].as_str().unwrap().contains("last=COUNT"),
            "{problem}"
        );
    }
}
