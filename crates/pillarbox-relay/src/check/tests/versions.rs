//! The versions of aggregates.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
};

use async_trait::async_trait;

use super::{
    super::versions::{Aggregate, LetThrough, VersionIndex},
    *,
};

/// A store's versions, and the requests to it.
#[derive(Default)]
struct Versions {
    latest: Mutex<HashMap<Aggregate, LetThrough>>,
    dead: Mutex<HashSet<Seq>>,
    asked: Mutex<Vec<Aggregate>>,
}

#[async_trait]
impl AggregateVersions for Versions {
    async fn latest(&self, aggregates: &[Aggregate]) -> Result<Vec<Option<LetThrough>>, StoreError> {
        self.asked.lock().unwrap().extend_from_slice(aggregates);
        let latest = self.latest.lock().unwrap();
        Ok(aggregates
            .iter()
            .map(|aggregate| latest.get(aggregate).copied())
            .collect())
    }

    async fn dead_among(&self, seqs: &[Seq]) -> Result<Vec<Seq>, StoreError> {
        let dead = self.dead.lock().unwrap();
        Ok(seqs.iter().copied().filter(|seq| dead.contains(seq)).collect())
    }

    async fn has_index(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn make_index(&self, _index: VersionIndex) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    fn index_sql(&self, _index: VersionIndex) -> String {
        String::new()
    }
}

fn version(id: &str, version: i64) -> Event {
    Event::to("t")
        .event_type("X")
        .aggregate("order", id)
        .aggregate_version(version)
}

fn increasing(on_failure: OnFailure, store: &Arc<Versions>) -> Checks {
    let options = CheckOptions {
        aggregate_versions: Some(on_failure),
        ..CheckOptions::default()
    };
    Checks::new(&options, Some(store.clone())).unwrap()
}

/// Which of these events, with seqs starting at `first`, are rejected.
async fn rejected(checks: &Checks, first: Seq, events: &[Event], memory: &mut Memory) -> Vec<bool> {
    let events: Vec<_> = (first..).zip(events).collect();
    let findings = checks.look(&events, Some(memory)).await.unwrap();
    findings
        .iter()
        .map(|finding| finding.rejection().is_some())
        .collect()
}

#[tokio::test]
async fn an_aggregates_versions_must_increase() {
    let store = Arc::new(Versions::default());
    let checks = increasing(OnFailure::Reject, &store);
    let mut memory = Memory::default();
    let events = [
        version("a", 1),
        version("b", 1),
        version("a", 1),
        version("a", 3),
        version("a", 2),
    ];
    assert_eq!(
        rejected(&checks, 1, &events, &mut memory).await,
        [false, false, true, false, true]
    );
    // Accepted versions are remembered. An event without a version and a copy of a dead event are not checked.
    let none = Event::to("t").event_type("X").aggregate("order", "a");
    let copy = version("a", 1).header("replay-of", "018f0000-0000-7000-8000-000000000001");
    let events = [version("a", 3), version("a", 4), none, copy];
    assert_eq!(
        rejected(&checks, 6, &events, &mut memory).await,
        [true, false, false, false]
    );
    assert_eq!(store.asked.lock().unwrap().len(), 2, "each aggregate once");
}

#[tokio::test]
async fn a_restart_checks_unsettled_events_again_with_the_same_result() {
    let store = Arc::new(Versions::default());
    store
        .latest
        .lock()
        .unwrap()
        .insert(("order".into(), "a".into()), LetThrough { version: 5, seq: 9 });
    let checks = increasing(OnFailure::Reject, &store);
    let events = [version("a", 5), version("a", 6), version("b", 1)];
    assert_eq!(
        rejected(&checks, 10, &events, &mut Memory::default()).await,
        [true, false, false]
    );
    // The next tenure reads them again, because they were not settled. The results are the same.
    assert_eq!(
        rejected(&checks, 10, &events, &mut Memory::default()).await,
        [true, false, false]
    );
}

#[tokio::test]
async fn an_event_that_died_does_not_count() {
    let store = Arc::new(Versions::default());
    let checks = increasing(OnFailure::Reject, &store);
    let mut memory = Memory::default();
    assert_eq!(
        rejected(&checks, 1, &[version("a", 5)], &mut memory).await,
        [false]
    );
    assert_eq!(
        rejected(&checks, 2, &[version("a", 5)], &mut memory).await,
        [true]
    );
    store.dead.lock().unwrap().insert(1);
    assert_eq!(
        rejected(&checks, 3, &[version("a", 5)], &mut memory).await,
        [false]
    );
}

#[tokio::test]
async fn stale_versions_that_are_only_warned_of_pass_and_do_not_lower_the_mark() {
    let store = Arc::new(Versions::default());
    let checks = increasing(OnFailure::Warn, &store);
    let mut memory = Memory::default();
    let findings = look(
        &checks,
        &[version("a", 5), version("a", 2), version("a", 3)],
        &mut memory,
    )
    .await;
    assert_eq!(findings[0], Finding::Pass);
    assert!(matches!(&findings[1], Finding::Failed(_)) && matches!(&findings[2], Finding::Failed(_)));
    assert!(findings.iter().all(|finding| finding.rejection().is_none()));
}
