//! Streams on a real NATS server, with events from a real PostgreSQL.

use std::path::Path;

use pillarbox_testkit::servers::{self, NatsOptions};

use super::*;

fn configure(folder: &Path, database: &str, nats: &str) {
    let text = format!(
        "outbox:\n  database: {{ url: \"{database}\" }}\n  sinks: {{ events: {{ url: \"{nats}\" }} }}\n  routes: [{{ topic: \"shop.>\", sink: events, stream: SHOP }}]\n  streams: [{{ name: SHOP, subjects: [\"shop.>\"] }}]\n"
    );
    std::fs::write(folder.join("pillarbox.yaml"), text).unwrap();
}

fn enqueue(folder: &Path, id: u32) {
    let output = run_with_input(
        folder,
        &["enqueue", "--ndjson"],
        &line(id).replace("t.x", "shop.x"),
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

fn wait_until_delivered(folder: &Path) {
    until_ok_blocking(|| {
        let status = json(&run(folder, &["status", "--json"]));
        if status["pending"] == 0 {
            assert_eq!((&status["failed"], &status["dead"]), (&0.into(), &0.into()));
            return Ok(());
        }
        Err(format!("it was never delivered: {status}"))
    });
}

#[tokio::test]
async fn a_missing_stream_says_streams_apply_which_makes_it() {
    let Some(nats) = servers::Nats::start().await else {
        return;
    };
    let Some(postgres) = servers::postgres().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    configure(folder, &postgres.database().await, &nats.url());
    let output = run(folder, &["migrate"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));

    let output = run(folder, &["run", "--no-http"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("streams apply"), "{}", stderr(&output));
    let output = run(folder, &["streams", "check"]);
    assert_eq!(
        (code(&output), stdout(&output).contains("missing")),
        (1, true),
        "{}",
        stdout(&output)
    );
    assert_eq!(
        json(&run(folder, &["streams", "apply", "--json"]))["streams"][0]["state"],
        "missing"
    );
    let checked = run(folder, &["streams", "check", "--json"]);
    assert_eq!((code(&checked), &json(&checked)["in_order"]), (0, &true.into()));

    enqueue(folder, 1);
    let relay = Running::start(folder, &["run", "--no-http"]);
    wait_until_delivered(folder);
    assert_eq!(relay.stop().0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_kafka_topic_stops_the_relay_until_topics_apply() {
    let Some(kafka) = servers::kafka().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = format!(
        "outbox:\n  database: {{ url: \"sqlite:shop.db\" }}\n  sinks: {{ events: {{ url: \"{}\" }} }}\n  topics: [{{ name: shop.x, partitions: 2, settings: {{ retention.ms: 3600000 }} }}]\n",
        kafka.url()
    );
    std::fs::write(folder.join("pillarbox.yaml"), text).unwrap();
    assert_eq!(code(&run(folder, &["migrate"])), 0);
    let output = run(folder, &["run", "--no-http"]);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("shop.x") && stderr(&output).contains("streams apply"),
        "{}",
        stderr(&output)
    );
    assert_eq!(code(&run(folder, &["topics", "check"])), 1);
    let applied = run(folder, &["topics", "apply", "--json"]);
    assert_eq!(
        json(&applied)["streams"][0]["state"],
        "missing",
        "{}",
        stderr(&applied)
    );
    let checked = run(folder, &["topics", "check"]);
    assert_eq!(code(&checked), 0, "{}{}", stdout(&checked), stderr(&checked));

    enqueue(folder, 1);
    let relay = Running::start(folder, &["run", "--no-http"]);
    wait_until_delivered(folder);
    assert_eq!(relay.stop().0, 0);
}

#[tokio::test]
async fn a_sink_away_from_the_start_delays_delivery_and_costs_nothing() {
    let Some(mut nats) = servers::Nats::start().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    configure(folder, "sqlite:shop.db", &nats.url());
    assert_eq!(code(&run(folder, &["migrate"])), 0);
    assert_eq!(code(&run(folder, &["streams", "apply"])), 0);
    enqueue(folder, 1);
    nats.stop().await;
    assert_eq!(
        code(&run(folder, &["streams", "check"])),
        2,
        "NATS is away, so the command must fail"
    );

    let relay = Running::start(folder, &["run", "--no-http"]);
    let said = relay.says("is away");
    assert!(said.contains("Connection refused"), "{said}");
    relay.says("Relaying from");
    nats.start_again().await;
    wait_until_delivered(folder);
    assert_eq!(relay.stop().0, 0);
}

#[tokio::test]
async fn a_wrong_password_ends_the_start_and_is_not_shown() {
    let options = NatsOptions::configured("authorization { user: app, password: richtig }");
    let Some(nats) = servers::Nats::start_with(options).await else {
        return;
    };
    let folder = migrated();
    let folder = folder.path();
    let url = nats.url().replace("nats://", "nats://app:falsch@");
    let with_streams = tempfile::tempdir().unwrap();
    let with_streams = with_streams.path();
    configure(with_streams, "sqlite:shop.db", &url);
    for (folder, args) in [
        (folder, &["--sink", &url, "run", "--no-http"][..]),
        (with_streams, &["run", "--no-http", "--migrate"]),
    ] {
        let relay = Running::start(folder, args);
        let said = relay.says("refuses these credentials");
        assert!(said.contains("error: sink") && !said.contains("falsch"), "{said}");
    }
}
