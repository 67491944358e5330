//! Reprocessing on a schedule, and the same by hand.

use serde_json::Value;

use super::harness::{Relay, Scene, scenes, until};

fn letters(scene: &Scene, more: &[&str]) -> Vec<Value> {
    let list = scene.json(&[&["dead", "list", "--letters", "--done"], more].concat());
    list["letters"].as_array().unwrap().clone()
}

fn recoveries(scene: &Scene, topic: &str) -> Vec<Value> {
    let letter = letters(scene, &["--topic", topic]).remove(0);
    let shown = scene.json(&["dead", "show", letter["id"].as_str().unwrap()]);
    shown["recoveries"].as_array().unwrap().clone()
}

fn schedule(more: &str) -> String {
    format!("  dlq: {{ reprocess: [{{ name: often, every_seconds: 1, min_age_seconds: 0, {more} }}] }}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schedule_delivers_dead_events_once_the_cause_is_fixed() {
    for scene in scenes().await {
        scene.enqueue("lost.a", 30);
        scene.enqueue("other.a", 1);
        let relay = scene.relay("before");
        scene.until_dead(31);
        relay.stop();
        let schedule = schedule("topic: 'lost.>'");
        scene.configure(", { topic: 'lost.>', sink: out }", &schedule);
        // Two relays: each run is done by one of them.
        let relays = [scene.relay("one"), scene.relay("two")];
        let logs = || relays.iter().map(Relay::log).collect::<String>();
        let delivered = || logs().matches(r#""topic":"lost.a""#).count();
        until("they are delivered", || delivered() == 30);
        scene.until_dead(1);
        let done = recoveries(&scene, "lost.a");
        assert_eq!(done.len(), 1, "{done:?}");
        assert_eq!(
            (&done[0]["why"], &done[0]["action"]),
            (&"often".into(), &"replayed".into())
        );
        let by = done[0]["by"].as_str().unwrap();
        assert!(["reprocessor (one)", "reprocessor (two)"].contains(&by), "{by}");
        assert!(
            recoveries(&scene, "other.a").is_empty(),
            "the schedule must not send other topics"
        );
        let logs: String = relays.map(Relay::stop).concat();
        assert_eq!(logs.matches("replayed dead letters").count(), 1, "{logs}");
        assert!(logs.contains("replayed=30"), "{logs}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_again_for_ever() {
    for scene in scenes().await {
        scene.configure("", &schedule("times_max: 2"));
        scene.enqueue("lost.a", 1);
        let relay = scene.relay("relay");
        until("it was sent again twice", || {
            scene.dead() == 1 && recoveries(&scene, "lost.a").len() == 2
        });
        // While the second letter gets its two runs, the first one could have got more. It must not.
        scene.enqueue("lost.b", 1);
        until("another letter was sent again twice", || {
            scene.dead() == 2 && recoveries(&scene, "lost.b").len() == 2
        });
        assert_eq!(recoveries(&scene, "lost.a").len(), 2);
        relay.stop();
        let tried = scene.run(&["--json", "dead", "reprocess", "--dry-run"]);
        assert_eq!(
            tried.status.code(),
            Some(1),
            "no letter may be left to send again"
        );
    }
}

#[test]
fn by_hand_it_does_what_the_schedule_would() {
    let scene = Scene::sqlite();
    let unknown = scene.run(&["dead", "reprocess"]);
    assert_eq!(unknown.status.code(), Some(2), "nothing is configured");
    let daily = "  dlq: { enable_manual_replay: false, reprocess: [\
        { name: nightly, at: '03:30', topic: lost.a, limit: 3, min_age_seconds: 0 }, \
        { name: old, every_seconds: 3600, min_age_seconds: 3600 }] }\n";
    scene.configure("", daily);
    scene.enqueue("lost.a", 5);
    let relay = scene.relay("relay");
    scene.until_dead(5);
    relay.stop();
    let tried = scene.json(&["dead", "reprocess", "--dry-run"]);
    assert_eq!(
        (
            &tried["schedules"][0]["letters"],
            &tried["schedules"][1]["letters"]
        ),
        (&3.into(), &0.into())
    );
    assert_eq!(scene.dead(), 5);
    let forbidden = scene.run(&["dead", "reprocess"]);
    assert_eq!(
        forbidden.status.code(),
        Some(2),
        "replaying by hand must be forbidden"
    );
    scene.configure(
        "",
        &daily.replace("enable_manual_replay: false", "enable_manual_replay: true"),
    );
    let done = scene.json(&["dead", "reprocess", "nightly", "--by", "Zoë"]);
    assert_eq!(done["schedules"][0]["letters"], 3);
    assert_eq!(scene.dead(), 2);
    let oldest = letters(&scene, &[]).pop().unwrap();
    let shown = scene.json(&["dead", "show", oldest["id"].as_str().unwrap()]);
    let done = &shown["recoveries"][0];
    assert_eq!(
        (&done["by"], &done["why"]),
        (&"Zoë".into(), &"reprocess nightly".into())
    );
    let unknown = scene.run(&["dead", "reprocess", "weekly"]);
    assert_eq!(unknown.status.code(), Some(2));
}
