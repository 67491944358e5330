//! A webhook that is away, refuses, or answers 410; its signatures and secrets.

use pillarbox_testkit::{servers, webhooks::Receiver};

use super::harness::{SECRET, Scene, TOKEN, received, scenes, until, what};

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_is_away_misses_nothing_and_gets_the_same_id_each_time() {
    for scene in scenes().await {
        let port = servers::free_port();
        scene.tells(port, "");
        scene.enqueue("lost.a", 20);
        let first = scene.relay("first");
        first.says("events are dead");
        // The second attempt is a second later. By then the relay has recorded that the log has its notice.
        until("the webhook is tried twice", || {
            first.log().matches("could not deliver a notice").count() > 1
        });
        let mut log = first.kill();

        // Another relay continues where the killed one stopped.
        let second = scene.relay("second");
        second.says("could not deliver a notice");
        let receiver = Receiver::start_at(port);
        receiver.answer(500);
        received(&receiver, 2);
        receiver.answer(204);
        second.says("it answered 500");
        let refused = receiver.requests().len();
        scene.until_dead(20);
        scene.discard_all();
        until("the end was reported", || {
            receiver
                .requests()
                .iter()
                .any(|notice| what(&notice.json()).0 == "recovered")
        });
        let notices = receiver.requests();
        let (opened, ended): (Vec<_>, Vec<_>) = notices
            .iter()
            .partition(|notice| what(&notice.json()).0 == "opened");
        assert!(opened.len() > refused.min(2) && ended.len() == 1, "{notices:?}");
        for notice in &opened {
            assert_eq!((notice.id(), &notice.body), (opened[0].id(), &opened[0].body));
        }
        assert!(opened[0].id().starts_with("msg_") && ended[0].id() != opened[0].id());
        assert_eq!(opened[0].headers["content-type"], "application/json");
        for notice in &notices {
            assert!(notice.verified(SECRET).unwrap_or(true), "{notice:?}");
            let other = SECRET.replace("MfKQ", "AAAA");
            assert!(
                !notice.verified(&other).unwrap_or(false),
                "another secret must not verify"
            );
        }
        log += &second.stop();
        assert_eq!(
            log.matches("WARN events are dead").count(),
            1,
            "the log must not repeat a notice: {log}"
        );
        assert_silent(&log);
    }
}

fn assert_silent(text: &str) {
    for secret in [TOKEN, SECRET, SECRET.trim_start_matches("whsec_")] {
        assert!(!text.contains(secret), "a secret is shown: {text}");
    }
}

#[test]
fn a_webhook_that_answers_gone_is_called_again_only_after_a_restart() {
    let scene = Scene::sqlite();
    let receiver = Receiver::start();
    receiver.answer(410);
    scene.tells(receiver.port(), "");
    scene.enqueue("lost.a", 1);
    let relay = scene.relay("relay");
    relay.says("this channel gets no more notices until the relay is started again");
    scene.enqueue("lost.b", 1);
    until("the command still gets notices", || scene.commanded().len() == 2);
    relay.stop();
    assert_eq!(receiver.requests().len(), 1);
    receiver.answer(200);
    scene.enqueue("lost.c", 1);
    let relay = scene.relay("relay");
    let notices = received(&receiver, 2);
    assert!(
        notices[1].json()["data"]["error"]
            .as_str()
            .unwrap()
            .contains("lost.c")
    );
    relay.stop();
}

#[test]
fn a_test_notice_shows_which_channel_works() {
    let scene = Scene::sqlite();
    let receiver = Receiver::start();
    scene.tells(receiver.port(), "");
    let answer = scene.json(&["dead", "test-notice"]);
    let channels = answer["channels"].as_array().unwrap();
    assert_eq!(channels.len(), 3);
    assert!(
        channels.iter().all(|channel| channel["taken"] == true),
        "{answer}"
    );
    let notice = &receiver.requests()[0];
    assert_eq!(notice.json()["type"], "pillarbox.test");
    assert!(notice.verified(SECRET).unwrap_or(true));
    assert_eq!(scene.commanded()[0]["type"], "pillarbox.test");

    receiver.answer(500);
    let output = scene.run(&["dead", "test-notice"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("it answered 500") && said.contains("taken"),
        "{said}"
    );
    drop(receiver);
    let output = scene.run(&["--log", "debug", "dead", "test-notice"]);
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(said.contains("Connection refused"), "{said}");
    assert_silent(&said);
    assert_silent(&scene.done(&["config", "check"]));
}

#[test]
fn while_secrets_are_changed_each_of_them_signs() {
    let scene = Scene::sqlite();
    let receiver = Receiver::start();
    let other = SECRET.replace("MfKQ", "AAAA");
    let both = format!("secrets: ['{other}', '{SECRET}']");
    let telling = scene
        .telling(receiver.port(), "")
        .replace(&format!("secret: '{SECRET}'"), &both);
    scene.configure("", &telling);
    scene.done(&["dead", "test-notice"]);
    let notice = &receiver.requests()[0];
    for secret in [SECRET, &other] {
        assert!(notice.verified(secret).unwrap_or(true));
    }
    assert_eq!(notice.headers["webhook-signature"].split(' ').count(), 2);
    assert_silent(&scene.done(&["config", "check"]));
}
