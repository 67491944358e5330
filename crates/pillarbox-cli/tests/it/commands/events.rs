//! Writing, showing and delivering events.

use serde_json::Value;

use super::*;

#[test]
fn the_demo_judges_the_events_that_it_received() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(
        folder.path(),
        &["demo", "--exit", "--orders", "20", "--listen", "127.0.0.1:0"],
    );
    let text = stdout(&output);
    assert_eq!(code(&output), 0, "{text}{}", stderr(&output));
    assert!(
        text.contains(
            "The event of every committed order arrived, once and in order; none of the 7 rolled back arrived."
        ),
        "{text}"
    );
    assert!(
        !text.contains('\x1b'),
        "there must be no colours without a terminal"
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "the demo must leave nothing behind"
    );

    let output = run(
        folder.path(),
        &["demo", "--json", "--orders", "9", "--listen", "127.0.0.1:0"],
    );
    let verdict = json(&output);
    assert_eq!(
        (&verdict["kept"], &verdict["committed"], &verdict["delivered"]),
        (&true.into(), &6.into(), &6.into())
    );
}

#[test]
fn an_enqueued_event_is_pending_until_a_relay_has_run() {
    let folder = migrated();
    let args = [
        "enqueue",
        "--topic",
        "shop.order.placed",
        "--type",
        "OrderPlaced",
        "--aggregate-type",
        "order",
        "--aggregate-id",
        "o-1",
        "--payload",
        r#"{"total": 990}"#,
        "--header",
        "traceparent=00-x",
    ];
    let output = run(folder.path(), &args);
    assert!(
        stdout(&output).starts_with("new "),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    let status = json(&run(folder.path(), &["status", "--json"]));
    assert_eq!((&status["pending"], &status["dead"]), (&1.into(), &0.into()));
    assert!(stdout(&run(folder.path(), &["status"])).contains("pending"));

    let relay = Running::start(folder.path(), &["--sink", "stdout:", "run", "--no-http"]);
    relay.says("Relaying from sqlite:pillarbox.db");
    until_none(folder.path(), "pending");
    let (exit, out) = relay.stop();
    assert_eq!(exit, 0);
    let event: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&event["topic"], &event["payload"]["total"]),
        (&"shop.order.placed".into(), &990.into())
    );
}

#[test]
fn the_same_id_is_written_once() {
    let folder = migrated();
    let input = line(1) + &line(2) + &line(1);
    let first = json(&run_with_input(
        folder.path(),
        &["enqueue", "--ndjson", "--json"],
        &input,
    ));
    assert_eq!((&first["new"], &first["duplicate"]), (&2.into(), &1.into()));
    let again = run_with_input(folder.path(), &["enqueue", "-"], &line(2));
    assert!(stdout(&again).starts_with("duplicate 018f"), "{}", stdout(&again));
    assert_eq!(json(&run(folder.path(), &["status", "--json"]))["pending"], 2);
}

#[test]
fn a_bad_line_is_named_and_nothing_is_written() {
    let folder = migrated();
    for (bad, why) in [("{\"topic\": \n", "line 2: "), ("{\"colour\": 1}\n", "line 2: ")] {
        let output = run_with_input(
            folder.path(),
            &["enqueue", "--ndjson"],
            &(line(1) + bad + &line(3)),
        );
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
    let empty_topic = line(2).replace("t.x", "");
    let output = run_with_input(
        folder.path(),
        &["enqueue", "--ndjson"],
        &(line(1) + "\n" + &empty_topic),
    );
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("line 3: topic is empty"),
        "{}",
        stderr(&output)
    );
    assert_eq!(json(&run(folder.path(), &["status", "--json"]))["pending"], 0);
}

#[test]
fn tail_shows_committed_events_delivered_or_not() {
    let folder = migrated();
    run_with_input(
        folder.path(),
        &["enqueue", "--ndjson"],
        &(line(1) + &line(2) + &line(3)),
    );
    let output = run(folder.path(), &["tail", "-n", "2", "--follow=false", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let lines: Vec<Value> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[1]["status"], &lines[1]["event"]["payload"]["n"]),
        (&"pending".into(), &3.into())
    );
}
