//! The delivery of notices.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use pillarbox_relay::notice::{Claim, Delivery};

use super::{
    StoreHarness, notices,
    notices::{PRINT, channels, claimed, telling},
    scene::*,
};

pub async fn a_claimed_delivery_is_claimed_again_only_after_its_lease(harness: Arc<dyn StoreHarness>) {
    let notices = notices(&*harness);
    assert_eq!(
        notices.claim("log", LONG).await.unwrap(),
        Claim::Nothing { next: None }
    );
    notices
        .tell(&telling(PRINT, 0), &channels(&["log"]))
        .await
        .unwrap();
    let claims = (0..4).map(|_| claimed(&notices, "log", SHORT));
    let claims: Vec<Delivery> = futures::future::join_all(claims)
        .await
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(claims.len(), 1, "{claims:?}");
    assert_eq!(claims[0].attempts, 1);
    let second = OnceLock::new();
    eventually("the lease ends", || async {
        match notices.claim("log", LONG).await.unwrap() {
            Claim::One(again) => {
                assert_eq!((again.id, again.attempts), (claims[0].id, 2));
                second.set(*again).is_ok()
            }
            Claim::Nothing { next } => {
                assert!(next.is_some_and(|next| next <= SHORT), "{next:?}");
                false
            }
        }
    })
    .await;
    let Claim::Nothing { next: Some(next) } = notices.claim("log", LONG).await.unwrap() else {
        panic!("it is claimed");
    };
    assert!(next <= LONG && next > LONG / 2);
    notices.delivered(&claims[0]).await.unwrap();
    assert!(
        matches!(
            notices.claim("log", LONG).await.unwrap(),
            Claim::Nothing { next: Some(_) }
        ),
        "it belongs to the second relay now"
    );
    notices.delivered(second.get().unwrap()).await.unwrap();
    assert_eq!(
        notices.claim("log", LONG).await.unwrap(),
        Claim::Nothing { next: None }
    );
}

pub async fn a_failed_delivery_comes_again_later_or_never(harness: Arc<dyn StoreHarness>) {
    let notices = notices(&*harness);
    notices
        .tell(&telling(PRINT, 0), &channels(&["hook"]))
        .await
        .unwrap();
    let first = claimed(&notices, "hook", LONG).await.unwrap();
    notices
        .failed(&first, Some(SHORT), "it said “no”\0")
        .await
        .unwrap();
    let claim = notices.claim("hook", LONG).await.unwrap();
    assert!(
        matches!(claim, Claim::Nothing { next: Some(next) } if next <= SHORT),
        "{claim:?}"
    );
    eventually("it is due again", || async {
        claimed(&notices, "hook", Duration::ZERO).await.is_some()
    })
    .await;
    let again = claimed(&notices, "hook", LONG).await.unwrap();
    assert_eq!((again.id, again.attempts), (first.id, 3));
    notices.failed(&again, None, "no").await.unwrap();
    assert_eq!(
        notices.claim("hook", LONG).await.unwrap(),
        Claim::Nothing { next: None }
    );
}

pub async fn a_later_notice_waits_for_an_earlier_one(harness: Arc<dyn StoreHarness>) {
    let notices = notices(&*harness);
    let to = channels(&["hook", "log"]);
    let told = [telling(PRINT, 0), telling(PRINT, 1)];
    for telling in &told {
        notices.tell(telling, &to).await.unwrap();
    }
    let first = claimed(&notices, "hook", LONG).await.unwrap();
    assert_eq!(first.id, told[0].id);
    let claim = notices.claim("hook", LONG).await.unwrap();
    assert!(
        matches!(claim, Claim::Nothing { next: Some(next) } if next > LONG / 2),
        "{claim:?}"
    );
    assert!(claimed(&notices, "log", LONG).await.is_some(), "another channel");
    notices.tell(&telling("other", 0), &to).await.unwrap();
    let other = claimed(&notices, "hook", LONG).await.unwrap();
    assert_eq!(&*other.fingerprint, "other", "another cause");
    notices.failed(&first, None, "given up").await.unwrap();
    assert_eq!(
        claimed(&notices, "hook", LONG).await.map(|delivery| delivery.id),
        Some(told[1].id)
    );
}
