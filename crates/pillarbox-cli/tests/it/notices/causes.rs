//! One notice for each cause, however many events die of it, and one when it is over.

use std::collections::HashSet;

use pillarbox_testkit::webhooks::Receiver;

use super::harness::{Scene, received, scenes, until, what};

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_deaths_of_three_causes_are_three_notices_and_three_ends() {
    for scene in scenes().await {
        let receiver = Receiver::start();
        scene.tells(receiver.port(), "");
        for topic in ["lost.a", "lost.b", "lost.c"] {
            scene.enqueue(topic, 100);
        }
        let relay = scene.relay("first");
        let notices = received(&receiver, 3);
        let prints: HashSet<String> = notices.iter().map(|notice| what(&notice.json()).1).collect();
        assert_eq!(prints.len(), 3, "{notices:?}");
        for notice in &notices {
            let data = notice.json()["data"].clone();
            assert_eq!(what(&notice.json()).0, "opened");
            assert!(
                data["count"].as_u64().unwrap() > 1,
                "the first deaths must be collected into one notice: {data}"
            );
            assert_eq!(
                (&data["relay"], &data["outbox"]),
                (&"first".into(), &"outbox_events".into())
            );
            assert_eq!(data["reason"], "permanent_failure");
            let sample = &data["sample"];
            assert_eq!(
                (&sample["event_type"], &sample["aggregate_type"]),
                (&"X".into(), &"a".into())
            );
            let aggregate: u8 = sample["aggregate_id"].as_str().unwrap().parse().unwrap();
            assert!(aggregate < 100, "{sample}");
            let shown = scene.json(&["dead", "show", sample["event_id"].as_str().unwrap()]);
            assert_eq!(shown["fingerprint"], data["fingerprint"]);
            assert!(
                data["error"].as_str().unwrap().contains("no route matches"),
                "{data}"
            );
        }
        scene.until_dead(300);
        let groups = scene.json(&["dead", "list"]);
        assert!(
            groups["groups"]
                .as_array()
                .unwrap()
                .iter()
                .all(|group| group["told_at"].is_string())
        );

        // More deaths of the same cause within the quiet period cause no notice. The notice that it is over
        // comes after all others.
        for topic in ["lost.a", "lost.b", "lost.c"] {
            scene.enqueue(topic, 50);
        }
        scene.until_dead(450);
        scene.discard_all();
        let notices = received(&receiver, 6);
        let ends: HashSet<String> = notices[3..]
            .iter()
            .map(|notice| {
                let notice = notice.json();
                assert_eq!(
                    (&notice["data"]["discarded"], &notice["data"]["replayed"]),
                    (&150.into(), &0.into())
                );
                assert_eq!(what(&notice).0, "recovered");
                what(&notice).1
            })
            .collect();
        assert_eq!(ends, prints);

        // The relay keeps looking and reports only the new cause.
        scene.enqueue("lost.d", 1);
        let notices = received(&receiver, 7);
        assert_eq!(what(&notices[6].json()).0, "opened");
        assert_eq!(notices.len(), 7);
        until("the command got the notices too", || scene.commanded().len() >= 7);
        let commanded = scene.commanded();
        let heard: HashSet<(String, String)> = commanded.iter().map(what).collect();
        let sent: HashSet<(String, String)> = notices.iter().map(|notice| what(&notice.json())).collect();
        assert_eq!((commanded.len(), heard), (7, sent));
        assert!(
            commanded
                .iter()
                .all(|notice| notice["data"]["sample"].is_object())
        );
        let environment = std::fs::read_to_string(scene.told_file().with_extension("env")).unwrap();
        assert!(
            environment.contains("PATH=") && !environment.contains("PILLARBOX_"),
            "{environment}"
        );
        relay.says("events are dead");
        let log = relay.stop();
        assert_eq!(log.matches("WARN events are dead").count(), 4, "{log}");
        let lines = log.lines().filter(|line| line.contains("WARN events are dead"));
        for line in lines {
            for field in [
                "event_id=",
                "event_type=\"X\"",
                "aggregate_type=\"a\"",
                "aggregate_id=",
            ] {
                assert!(line.contains(field), "{line}");
            }
        }
        assert_eq!(
            log.matches("INFO no dead letter of this cause is open any more")
                .count(),
            3,
            "{log}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_deaths_repeat_the_notice_once_per_quiet_period() {
    for scene in scenes().await {
        let receiver = Receiver::start();
        scene.tells(receiver.port(), ", quiet_period_seconds: 1");
        scene.enqueue("lost.a", 5);
        let relay = scene.relay("relay");
        received(&receiver, 1);
        scene.enqueue("lost.a", 3);
        let told = |receiver: &Receiver| {
            let notices: Vec<_> = receiver.requests().iter().map(|notice| notice.json()).collect();
            let new: u64 = notices
                .iter()
                .map(|notice| notice["data"]["new"].as_u64().unwrap())
                .sum();
            (new, notices)
        };
        until("all eight deaths were reported", || told(&receiver).0 >= 8);
        let (new, notices) = told(&receiver);
        let last = notices.last().unwrap();
        assert_eq!(
            (new, &last["data"]["count"], what(last).0.as_str()),
            (8, &8.into(), "more")
        );
        assert!(
            notices[1..].iter().all(|notice| what(notice).0 == "more"),
            "{notices:?}"
        );

        // The cause is fixed and the event delivered. It is not dead again, so the recovery is reported once.
        relay.stop();
        scene.configure(
            ", { topic: 'lost.>', sink: out }",
            &scene.telling(receiver.port(), ""),
        );
        let relay = scene.relay("relay");
        scene.done(&["dead", "replay", "--all", "--yes"]);
        let before = notices.len();
        let notices = received(&receiver, before + 1);
        let end = notices[before].json();
        assert_eq!(
            (what(&end).0.as_str(), &end["data"]["replayed"]),
            ("recovered", &8.into())
        );
        relay.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_relays_sends_the_notices() {
    for scene in scenes().await {
        let receiver = Receiver::start();
        scene.tells(receiver.port(), "");
        let relays = [scene.relay("one"), scene.relay("two")];
        for relay in &relays {
            relay.says("Relaying from");
        }
        // The events have keys in all lanes, so each relay has some of the deaths.
        scene.enqueue("lost.a", 200);
        received(&receiver, 1);
        scene.until_dead(200);
        scene.discard_all();
        let notices = received(&receiver, 2);
        let kinds: Vec<String> = notices.iter().map(|notice| what(&notice.json()).0).collect();
        assert_eq!(kinds, ["opened", "recovered"]);
        scene.enqueue("lost.b", 200);
        assert_eq!(received(&receiver, 3).len(), 3);
        until("both channels delivered their notices", || {
            scene.commanded().len() == 3
        });
        let logs: String = relays.map(super::harness::Relay::stop).concat();
        assert_eq!(logs.matches("WARN events are dead").count(), 2, "{logs}");
        assert_eq!(
            logs.matches("no dead letter of this cause is open any more")
                .count(),
            1,
            "{logs}"
        );
    }
}

#[test]
fn an_alert_is_an_error_in_the_log_and_nothing_else() {
    let scene = Scene::sqlite();
    let receiver = Receiver::start();
    let off = scene
        .telling(receiver.port(), "")
        .replace("enabled: true", "enabled: false");
    scene.configure(
        "",
        &format!("{off}  monitoring: {{ alert_on_dlq_events: true }}\n"),
    );
    scene.enqueue("lost.a", 2);
    let relay = scene.relay("relay");
    relay.says("ERROR events are dead");
    scene.discard_all();
    relay.says("INFO no dead letter of this cause is open any more");
    relay.stop();
    assert!(receiver.requests().is_empty() && scene.commanded().is_empty());
}
