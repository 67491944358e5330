//! Notices of dead letters and troubles.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use pillarbox_relay::{
    Settlement,
    dead::{Actor, CauseResult, DeadFilter, DeadGroup, ReplayAs},
    notice::{
        About, AboutTrouble, Claim, Delivery, Gone, Kind, Message, Notices, Options, Telling, ToldState,
        TroubleWatch, Watch,
    },
    settlement::DeadReason,
    store::{RelayId, Trouble, TroubleKind},
};
use uuid::Uuid;

use super::{
    StoreHarness,
    dying::{all, die, letters, scene},
    notices,
    scene::*,
};

pub(super) const PRINT: &str = "0123456789ab";

pub(super) fn telling(fingerprint: &str, before: u64) -> Telling {
    let died = Timestamp::from_microsecond(1_700_000_000_123_456).unwrap();
    let about = About {
        reason: DeadReason::PoisonMessage,
        count: 7,
        first_died_at: died - SignedDuration::from_secs(1),
        last_died_at: died,
        ..About::nothing(fingerprint, "no “such” \"thing\"", died, "outbox_events", "scene")
    };
    Telling {
        fingerprint: fingerprint.to_owned(),
        before,
        state: ToldState::Open,
        count: 7,
        last_died_at: died,
        about: serde_json::to_value(about).unwrap(),
        id: Uuid::now_v7(),
        body: format!("{{\"n\": {before}}}"),
        decided_at: Timestamp::now(),
    }
}

pub(super) fn channels(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(super) async fn claimed(notices: &Notices, channel: &str, lease: Duration) -> Option<Delivery> {
    match notices.claim(channel, lease).await.unwrap() {
        Claim::One(delivery) => Some(*delivery),
        Claim::Nothing { .. } => None,
    }
}

pub async fn open_letters_are_counted_by_cause(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    assert!(letters(&scene).causes().await.unwrap().is_empty());
    let (events, others) = (scene.stored("a", 3).await, scene.stored("b", 1).await);
    die(&scene, &events[..2], "this").await;
    die(&scene, &others, "that").await;
    let groups = letters(&scene).groups(&all()).await.unwrap();
    let causes = letters(&scene).causes().await.unwrap();
    assert_eq!((causes.len(), groups.len()), (2, 2));
    for (cause, group) in causes.iter().zip(&groups) {
        assert_eq!(
            (&cause.fingerprint, cause.count),
            (&group.fingerprint, group.count)
        );
        assert_eq!(cause.last_died_at, group.last_died_at);
    }
    let since = |after: Timestamp| {
        let later = DeadFilter {
            fingerprint: Some(causes[0].fingerprint.clone()),
            since: Some(after + SignedDuration::from_micros(1)),
            ..all()
        };
        let letters = letters(&scene);
        async move { letters.touched(&later).await.unwrap().count }
    };
    assert_eq!(since(causes[0].last_died_at).await, 0);
    assert_eq!(
        since(causes[0].last_died_at - SignedDuration::from_micros(1)).await,
        2
    );
    die(&scene, &events[2..], "this").await;
    assert_eq!(since(causes[0].last_died_at).await, 1);
    let person = Actor {
        by: "Zoë".into(),
        why: Some("done".into()),
    };
    letters(&scene).discard(&all(), 100, &person).await.unwrap();
    assert!(letters(&scene).causes().await.unwrap().is_empty());
    assert_eq!(since(Timestamp::UNIX_EPOCH).await, 0);
}

pub async fn one_relay_sends_a_notice(harness: Arc<dyn StoreHarness>) {
    let notices = notices(&*harness);
    for before in [0, 1, 2] {
        let tries: Vec<Telling> = (0..4).map(|_| telling(PRINT, before)).collect();
        // A channel that is named twice gets one delivery.
        let to = channels(&["log", "hook", "log"]);
        let told = futures::future::join_all(tries.iter().map(|telling| notices.tell(telling, &to))).await;
        let told: Vec<bool> = told.into_iter().map(Result::unwrap).collect();
        assert_eq!(told.iter().filter(|told| **told).count(), 1, "{told:?}");
        let first = &tries[told.iter().position(|told| *told).unwrap()];
        for channel in ["log", "hook"] {
            let delivery = claimed(&notices, channel, LONG).await.unwrap();
            assert_eq!((delivery.id, &delivery.body), (first.id, &first.body));
            assert_eq!(&*delivery.fingerprint, PRINT);
            notices.delivered(&delivery).await.unwrap();
            assert_eq!(claimed(&notices, channel, LONG).await, None, "one delivery each");
        }
    }
    assert!(
        !notices
            .tell(&telling(PRINT, 1), &channels(&["log"]))
            .await
            .unwrap(),
        "decided long ago"
    );
    assert_eq!(claimed(&notices, "log", LONG).await, None);
}

async fn told_group(scene: &Scene, notices: &Notices) -> DeadGroup {
    let mut groups = letters(scene).groups(&all()).await.unwrap();
    notices.add_told(&mut groups).await.unwrap();
    groups.remove(0)
}

pub async fn sent_notices_are_recorded(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let notices = notices(&*scene.harness);
    let (begin, told) = notices.told().await.unwrap();
    assert!(told.is_empty() && begin > Timestamp::now() - SignedDuration::from_secs(3_600));
    die(&scene, &scene.stored("a", 2).await, "no").await;
    let group = told_group(&scene, &notices).await;
    assert_eq!(group.told_at, None);

    let open = telling(&group.fingerprint, 0);
    assert!(notices.tell(&open, &[]).await.unwrap());
    let (now, told) = notices.told().await.unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].n, told[0].state, told[0].count), (1, ToldState::Open, 7));
    assert_eq!(told[0].last_died_at, open.last_died_at);
    assert_eq!(told[0].about, open.about);
    assert!(told[0].told_at >= begin && told[0].told_at <= now);
    let group = told_group(&scene, &notices).await;
    assert_eq!(group.told_at, Some(told[0].told_at));

    let over = Telling {
        state: ToldState::Recovered,
        count: 0,
        ..telling(&group.fingerprint, 1)
    };
    assert!(notices.tell(&over, &[]).await.unwrap());
    let (_, told) = notices.told().await.unwrap();
    assert_eq!(
        (told.len(), told[0].n, told[0].state),
        (1, 2, ToldState::Recovered)
    );
    let group = told_group(&scene, &notices).await;
    assert_eq!(group.told_at, None, "that it is over, they were told");
}

pub async fn an_outcome_counts_replayed_and_discarded_letters(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let (events, others) = (scene.stored("a", 4).await, scene.stored("b", 1).await);
    die(&scene, &events, "this").await;
    die(&scene, &others, "that").await;
    let group = letters(&scene).groups(&all()).await.unwrap().remove(0);
    let person = Actor {
        by: "Zoë".into(),
        why: Some("done".into()),
    };
    let one = |n: usize| DeadFilter::one(events[n].event.id.clone());
    for n in [0, 1] {
        letters(&scene)
            .replay(&one(n), 1, ReplayAs::Same, &person)
            .await
            .unwrap();
    }
    letters(&scene).discard(&one(2), 1, &person).await.unwrap();
    let of = |fingerprint: String, since| {
        let letters = letters(&scene);
        async move { letters.outcome(&fingerprint, since).await.unwrap() }
    };
    let outcome = |waiting| CauseResult {
        replayed: 2,
        discarded: 1,
        waiting,
    };
    assert_eq!(
        of(group.fingerprint.clone(), group.first_died_at).await,
        outcome(2)
    );
    scene
        .settle(Settlement {
            published_parked: vec![parked(&events[0])],
            ..Settlement::default()
        })
        .await;
    assert_eq!(
        of(group.fingerprint.clone(), group.first_died_at).await,
        outcome(1)
    );
    die(&scene, &events[1..2], "something else").await;
    let left = CauseResult {
        replayed: 1,
        discarded: 1,
        waiting: 0,
    };
    assert_eq!(of(group.fingerprint.clone(), group.first_died_at).await, left);
    let later = group.last_died_at + SignedDuration::from_micros(1);
    assert_eq!(of(group.fingerprint, later).await, CauseResult::default());
    assert_eq!(
        of("unknown".into(), group.first_died_at).await,
        CauseResult::default()
    );
}

/// The check that a relay makes, over this store.
pub async fn a_replayed_event_that_still_waits_is_no_recovery(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let notices = notices(&*scene.harness);
    let mut watch = Watch {
        dead_letters: letters(&scene),
        notices: notices.clone(),
        options: Options {
            recovery_wait: Duration::ZERO,
            ..Options::default()
        },
        relay: "scene".into(),
        outbox: "outbox_events".into(),
        gone: Gone::default(),
    };
    let to = channels(&["log"]);
    assert_eq!(watch.look(&to).await.unwrap(), 0, "nothing is dead");
    let events = scene.stored("a", 2).await;
    die(&scene, &events, "no").await;
    assert_eq!(watch.look(&to).await.unwrap(), 1);
    assert_eq!(watch.look(&to).await.unwrap(), 0, "nothing new");
    let person = Actor {
        by: "Zoë".into(),
        why: None,
    };
    letters(&scene)
        .replay(&all(), 100, ReplayAs::Same, &person)
        .await
        .unwrap();
    assert_eq!(watch.look(&to).await.unwrap(), 0, "they may die again");
    die(&scene, &events[1..], "no").await;
    scene
        .settle(Settlement {
            published_parked: vec![parked(&events[0])],
            ..Settlement::default()
        })
        .await;
    assert_eq!(
        watch.look(&to).await.unwrap(),
        0,
        "one did, within the quiet period"
    );
    letters(&scene).discard(&all(), 100, &person).await.unwrap();
    assert_eq!(watch.look(&to).await.unwrap(), 1);
    assert_eq!(watch.look(&to).await.unwrap(), 0, "said once");

    let mut kinds = Vec::new();
    while let Some(delivery) = claimed(&notices, "log", LONG).await {
        let message: Message = serde_json::from_str(&delivery.body).unwrap();
        kinds.push((
            message.kind,
            message.data.count,
            message.data.replayed,
            message.data.discarded,
        ));
        notices.delivered(&delivery).await.unwrap();
    }
    assert_eq!(
        kinds,
        [
            (Kind::Opened, 2, None, None),
            (Kind::Recovered, 0, Some(1), Some(1))
        ]
    );
}

/// The check that relays make, over this store.
pub async fn a_trouble_has_one_notice_and_one_when_it_ends(harness: Arc<dyn StoreHarness>) {
    let notices = notices(&*harness);
    let (store, relays) = (harness.store(), [RelayId::now_v7(), RelayId::now_v7()]);
    for relay in relays {
        store.heartbeat(relay, "scene", LONG, &[]).await.unwrap();
    }
    let watch = |wait| TroubleWatch::new(store.clone(), notices.clone(), wait, "scene", "outbox_events");
    let (mut patient, mut first, mut second) = (watch(LONG), watch(Duration::ZERO), watch(Duration::ZERO));
    let to = channels(&["log"]);
    assert_eq!(first.look(&to).await.unwrap(), 0, "all is well");

    let trouble = Trouble {
        kind: TroubleKind::Destination,
        what: "events/ORDERS orders.placed".into(),
        why: "no stream takes it".into(),
        since: Timestamp::from_second(1_700_000_000).unwrap(),
        events: None,
    };
    let of_two = [trouble.clone()];
    for relay in relays {
        store.report(relay, &of_two).await.unwrap();
    }
    assert_eq!(
        store.troubles().await.unwrap(),
        [trouble.clone(), trouble.clone()]
    );
    assert_eq!(patient.look(&to).await.unwrap(), 0, "it may pass");
    assert_eq!(first.look(&to).await.unwrap(), 1);
    assert_eq!(first.look(&to).await.unwrap(), 0, "said once");
    assert_eq!(second.look(&to).await.unwrap(), 0, "by one relay");

    // A relay that ended reports nothing any more. The trouble is over when the other relay is well.
    store.leave(relays[0]).await.unwrap();
    assert_eq!(second.look(&to).await.unwrap(), 0, "the other still has it");
    store.report(relays[1], &[]).await.unwrap();
    assert_eq!(store.troubles().await.unwrap(), []);
    assert_eq!(patient.look(&to).await.unwrap(), 0, "it may come again");
    assert_eq!(second.look(&to).await.unwrap(), 1, "any relay can tell");
    assert_eq!(first.look(&to).await.unwrap(), 0);

    let mut said = Vec::new();
    while let Some(delivery) = claimed(&notices, "log", LONG).await {
        let message: Message<AboutTrouble> = serde_json::from_str(&delivery.body).unwrap();
        assert_eq!(
            (message.data.what, message.data.since),
            (trouble.what.clone(), trouble.since)
        );
        said.push((message.kind, message.data.relays));
        notices.delivered(&delivery).await.unwrap();
    }
    assert_eq!(said, [(Kind::TroubleOpened, 2), (Kind::TroubleRecovered, 0)]);
}

pub async fn a_loss_has_a_notice_whenever_it_grows_and_none_when_it_is_no_longer_shown(
    harness: Arc<dyn StoreHarness>,
) {
    let notices = notices(&*harness);
    let (store, relays) = (harness.store(), [RelayId::now_v7(), RelayId::now_v7()]);
    for relay in relays {
        store.heartbeat(relay, "scene", LONG, &[]).await.unwrap();
    }
    let wait = Duration::ZERO;
    let mut watch = TroubleWatch::new(store.clone(), notices.clone(), wait, "scene", "outbox_events");
    let to = channels(&["log"]);
    let report = async |relay, events| {
        let loss = Trouble {
            kind: TroubleKind::Loss,
            what: "events".into(),
            why: "an id".into(),
            since: Timestamp::from_second(1_700_000_000).unwrap(),
            events: Some(events),
        };
        store.report(relay, &[loss]).await.unwrap();
    };
    report(relays[0], 2).await;
    assert_eq!(watch.look(&to).await.unwrap(), 1);
    assert_eq!(watch.look(&to).await.unwrap(), 0, "said once");
    report(relays[1], 3).await;
    assert_eq!(watch.look(&to).await.unwrap(), 1, "another relay found more");
    assert_eq!(watch.look(&to).await.unwrap(), 0);
    store.report(relays[1], &[]).await.unwrap();
    assert_eq!(watch.look(&to).await.unwrap(), 0, "it is older, not less");
    store.report(relays[0], &[]).await.unwrap();
    assert_eq!(watch.look(&to).await.unwrap(), 0, "lost events do not come back");
    report(relays[0], 1).await;
    assert_eq!(watch.look(&to).await.unwrap(), 1, "a later loss");

    let mut said = Vec::new();
    while let Some(delivery) = claimed(&notices, "log", LONG).await {
        let message: Message<AboutTrouble> = serde_json::from_str(&delivery.body).unwrap();
        said.push((message.kind, message.data.events));
        notices.delivered(&delivery).await.unwrap();
    }
    assert_eq!(said, [2, 5, 1].map(|events| (Kind::TroubleOpened, Some(events))));
}

pub async fn old_records_of_ended_causes_are_deleted(harness: Arc<dyn StoreHarness>) {
    let long = notices(&*harness);
    let over = |fingerprint| Telling {
        state: ToldState::Recovered,
        ..telling(fingerprint, 0)
    };
    let to = channels(&["gone"]);
    assert!(long.tell(&over("young"), &[]).await.unwrap());
    let short = long.clone().kept_for(Duration::ZERO);
    for telling in [&over("over"), &telling("open", 0)] {
        assert!(short.tell(telling, &to).await.unwrap());
    }
    eventually("what is old goes", || async {
        long.forget().await.unwrap();
        let (_, told) = long.told().await.unwrap();
        let mut left: Vec<&str> = told.iter().map(|told| &*told.fingerprint).collect();
        left.sort_unstable();
        let delivery = long.claim("gone", Duration::ZERO).await.unwrap();
        left == ["open", "young"] && delivery == Claim::Nothing { next: None }
    })
    .await;
}
