//! The letter that a notice names.

use std::{sync::Arc, time::Duration};

use pillarbox_relay::{
    dead::Actor,
    notice::{Gone, Message, Options, Sample, Watch},
};

use super::{
    StoreHarness,
    dying::{all, die, letters, scene},
    notices,
    notices::{channels, claimed},
    scene::*,
};

fn watch(scene: &Scene) -> Watch {
    Watch {
        dead_letters: letters(scene),
        notices: notices(&*scene.harness),
        options: Options {
            recovery_wait: Duration::ZERO,
            ..Options::default()
        },
        relay: "scene".into(),
        outbox: "outbox_events".into(),
        gone: Gone::default(),
    }
}

/// Makes a check, and returns the body of the notice that it wrote.
async fn notice(scene: &Scene, watch: &mut Watch) -> String {
    assert_eq!(watch.look(&channels(&["log"])).await.unwrap(), 1);
    let notices = notices(&*scene.harness);
    let delivery = claimed(&notices, "log", LONG).await.unwrap();
    notices.delivered(&delivery).await.unwrap();
    delivery.body
}

fn sample(body: &str) -> Sample {
    let message: Message = serde_json::from_str(body).unwrap();
    message.data.sample.unwrap()
}

pub async fn a_notice_names_one_letter_and_shows_no_payload(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 3).await;
    // A later letter that is done with is no sample.
    die(&scene, &events[2..], "no").await;
    let person = Actor {
        by: "Zoë".into(),
        why: None,
    };
    letters(&scene).discard(&all(), 100, &person).await.unwrap();
    die(&scene, &events[..2], "no").await;

    let mut watch = watch(&scene);
    let opened = notice(&scene, &mut watch).await;
    let latest = &events[1].event;
    let expected = Sample {
        event_id: latest.id.clone(),
        event_type: latest.event_type.clone(),
        aggregate_type: Some(latest.aggregate_type.clone()),
        aggregate_id: Some(latest.aggregate_id.clone()),
    };
    assert_eq!(sample(&opened), expected);
    let payload = std::str::from_utf8(&latest.payload).unwrap();
    assert!(!opened.contains(payload.trim_matches(['{', '}'])), "{opened}");

    letters(&scene).discard(&all(), 100, &person).await.unwrap();
    let recovered = notice(&scene, &mut watch).await;
    assert_eq!(sample(&recovered), expected);
}

pub async fn a_letter_whose_row_is_broken_is_named_without_its_aggregate(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 1).await;
    die(&scene, &events, "no").await;
    if !scene.harness.corrupt(events[0].event.id.clone()).await {
        return;
    }
    let named = sample(&notice(&scene, &mut watch(&scene)).await);
    assert_eq!(named.event_id, events[0].event.id);
    assert_eq!(
        (named.event_type, named.aggregate_type),
        (events[0].event.event_type.clone(), None)
    );
}
