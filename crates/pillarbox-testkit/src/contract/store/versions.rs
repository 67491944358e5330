//! The contract of aggregate versions.

use std::sync::Arc;

use pillarbox::Event;
use pillarbox_relay::{
    Settlement,
    check::versions::{LetThrough, VersionIndex},
};

use super::{StoreHarness, scene::*};

/// Versions 1 to 6 of one aggregate: two published, one failed, one dead, two pending.
pub async fn the_latest_version_is_one_that_was_let_through(harness: Arc<dyn StoreHarness>) {
    let Some(versions) = harness.versions() else {
        return;
    };
    versions.make_index(VersionIndex::Plain).await.unwrap();
    let scene = Scene::new(harness).await;
    let event = |id: &str| Event::to("t").event_type("X").aggregate("order", id);
    let mut events: Vec<Event> = (1..=6).map(|n| event("a").aggregate_version(n)).collect();
    events.push(event("b"));
    events.push(event("c").aggregate_version(9));
    scene.commit(&events).await;
    let read = drain(&mut scene.reader(), page(100)).await.events;
    let seqs: Vec<i64> = read.iter().map(|event| event.seq).collect();
    assert_eq!(seqs.len(), 8);
    let settlement = Settlement {
        published: vec![seqs[0], seqs[1], seqs[6]],
        failed: vec![failed(&read[2], 1, LONG)],
        dead: vec![dead(&read[3], 1)],
        ..Settlement::default()
    };
    scene.settle(settlement).await;
    let aggregate = |id: &str| ("order".to_owned(), id.to_owned());
    let asked = [
        aggregate("b"),
        aggregate("a"),
        aggregate("c"),
        aggregate("gone"),
        ("user".into(), "a".into()),
    ];
    let third = LetThrough {
        version: 3,
        seq: seqs[2],
    };
    let latest = versions.latest(&asked).await.unwrap();
    assert_eq!(latest, [None, Some(third), None, None, None]);
    assert!(versions.latest(&[]).await.unwrap().is_empty());
    assert_eq!(versions.dead_among(&seqs).await.unwrap(), [seqs[3]]);
    assert!(versions.dead_among(&[]).await.unwrap().is_empty());
}

pub async fn an_index_on_versions_is_made_once(harness: Arc<dyn StoreHarness>) {
    let Some(versions) = harness.versions() else {
        return;
    };
    for index in [VersionIndex::Plain, VersionIndex::Unique] {
        versions.make_index(index).await.unwrap();
        assert!(versions.has_index().await.unwrap());
        assert!(versions.make_index(index).await.unwrap().is_empty(), "{index:?}");
        let sql = versions.index_sql(index).to_lowercase();
        assert_eq!(sql.contains("unique"), index == VersionIndex::Unique, "{sql}");
    }
}
