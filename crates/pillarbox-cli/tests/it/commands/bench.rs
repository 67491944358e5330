//! `bench` measures, checks what it measured, and leaves nothing behind. These tests don't check the speed.

use pillarbox_testkit::servers;

use super::{code, json, run, stderr};

const KEYS: [&str; 15] = [
    "events",
    "seconds",
    "events_per_second",
    "pure_events_per_second",
    "naive_events_per_second",
    "ratio_to_pure",
    "ratio_to_naive",
    "statements_per_event",
    "hot_share",
    "relay_cpu_seconds",
    "relay_peak_bytes",
    "database_growth_bytes",
    "lost",
    "duplicated",
    "order_violations",
];

const SMALL: [&str; 6] = ["--events", "2000", "--pure-events", "500", "--naive-events", "20"];

#[test]
fn a_drain_on_sqlite_is_measured_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    for (sink, readable) in [("stdout:", true), ("null:", false)] {
        let arguments = [&["--json", "--sink", sink, "bench", "drain"][..], &SMALL].concat();
        let output = run(folder.path(), &arguments);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let report = json(&output);
        for key in KEYS {
            assert!(report.get(key).is_some(), "the report lacks {key}: {report}");
        }
        assert_eq!(
            (&report["events"], &report["lost"]),
            (&2000.into(), &0.into()),
            "{report}"
        );
        assert_eq!(report["order_violations"].is_null(), !readable, "{report}");
        assert!(report["ratio_to_naive"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn the_cost_of_metrics_logs_and_traces_is_measured_in_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let measure = [
        "--json",
        "--sink",
        "stdout:",
        "bench",
        "observability",
        "--events",
        "1000",
    ];
    let report = |sampled: &str| {
        let output = run(folder.path(), &[&measure[..], &["--sampled", sampled]].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        json(&output)
    };
    let all = report("1");
    assert!(all["ratio"].as_f64().unwrap() > 0.0, "{all}");
    assert!(all["trace_bytes_per_event"].as_f64().unwrap() > 500.0, "{all}");
    assert_eq!((&all["events"], &all["spans_dropped"]), (&1000.into(), &0.into()));
    let none = report("0");
    assert_eq!(none["trace_bytes_per_event"], 0.0, "{none}");
}

#[test]
fn poison_wants_a_broker_with_streams() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(
        folder.path(),
        &["--sink", "null:", "bench", "poison", "--events", "10"],
    );
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("nats://"), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_and_latencies_on_real_servers_are_measured_and_checked() {
    let Some(postgres) = servers::postgres().await else {
        return;
    };
    let Some(nats) = servers::Nats::start().await else {
        return;
    };
    let database = postgres.database().await;
    let folder = tempfile::tempdir().unwrap();
    let addresses = ["--json", "--database", &database, "--sink", &nats.url(), "bench"].map(str::to_owned);
    let measure = |what: &[&str]| {
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let output = run(folder.path(), &[&addresses[..], what].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        json(&output)
    };

    let report = measure(&[&["drain", "--relays", "2", "--hold-snapshot"][..], &SMALL].concat());
    for key in ["lost", "duplicated", "order_violations"] {
        assert_eq!(report[key], 0, "{report}");
    }
    assert!(report["hot_share"].as_f64().unwrap() > 0.95, "{report}");

    let report = measure(&["latency", "--rate", "200", "--seconds", "1"]);
    assert_eq!(
        (&report["lost"], &report["order_violations"]),
        (&0.into(), &0.into()),
        "{report}"
    );
    let times = ["p50_ms", "p99_ms", "max_ms"].map(|key| report[key].as_f64().unwrap());
    assert!(times[0] > 0.0 && times.is_sorted(), "{report}");

    let poison = [
        "poison", "--events", "2000", "--keys", "100", "--one-in", "20", "--pairs", "2",
    ];
    let report = measure(&poison);
    for key in ["lost", "duplicated", "order_violations"] {
        assert_eq!(report[key], 0, "{report}");
    }
    assert!(report["poisonous_events"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["pairs"].as_array().unwrap().len(), 2, "{report}");
    assert!(report["ratio"].as_f64().unwrap() > 0.0, "{report}");

    let report = measure(&["enqueue", "--transactions", "50"]);
    assert_eq!(report["ways"].as_array().unwrap().len(), 5, "{report}");
    assert_eq!(report["ways"][1]["ratio"], 1.0, "{report}");

    let report = measure(&["idle", "--seconds", "1"]);
    assert!(report["relay_cpu_percent"].is_number(), "{report}");

    let streams = async_nats::jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let left = futures::StreamExt::collect::<Vec<_>>(streams.stream_names()).await;
    assert!(left.is_empty(), "streams are left behind: {left:?}");
}

#[test]
fn the_bench_measures_checks_on_events_that_pass() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(
        folder.path(),
        &["--json", "--sink", "null:", "bench", "checks", "--events", "2000"],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report = json(&output);
    assert_eq!(report["events"], 2000);
    assert!(report["ratio"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn the_bench_compares_enqueue_with_a_plain_insert() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(
        folder.path(),
        &[
            "--json",
            "--sink",
            "null:",
            "bench",
            "enqueue",
            "--transactions",
            "50",
        ],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report = json(&output);
    assert_eq!(report["transactions"], 50);
    let ways = report["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 4, "{report}");
    assert!(
        ways.iter()
            .all(|way| way["p50_microseconds"].as_f64().unwrap() > 0.0),
        "{report}"
    );
}
