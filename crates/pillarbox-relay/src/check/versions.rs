//! The versions of an aggregate must increase. An event is stale if its version is not higher than that of the last
//! accepted event.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use pillarbox::{Event, wire};

use super::{Failure, Finding, OnFailure, recent::Recent};
use crate::{event::Seq, store::StoreError};

/// How many aggregates are remembered: about 30 MB.
const AGGREGATES_MAX: usize = 200_000;

/// An aggregate: its type and id.
pub type Aggregate = (String, String);

/// A version that was accepted, and the seq of its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LetThrough {
    pub version: i64,
    pub seq: Seq,
}

/// What a store knows about accepted versions. It is separate from [`crate::Store`], because only this check uses it.
#[async_trait]
pub trait AggregateVersions: Send + Sync + 'static {
    /// The highest version of each aggregate among its events that are neither dead nor pending, in the order of
    /// `aggregates`.
    async fn latest(&self, aggregates: &[Aggregate]) -> Result<Vec<Option<LetThrough>>, StoreError>;

    /// Those of these events that are dead.
    async fn dead_among(&self, seqs: &[Seq]) -> Result<Vec<Seq>, StoreError>;

    /// Whether the index that `latest` needs exists.
    async fn has_index(&self) -> Result<bool, StoreError>;

    /// Creates an index. Returns a line for each thing that it did.
    async fn make_index(&self, index: VersionIndex) -> Result<Vec<String>, StoreError>;

    /// The SQL of an index, for people who run migrations themselves.
    fn index_sql(&self, index: VersionIndex) -> String;
}

/// An index on the versions of aggregates. `latest` can use both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionIndex {
    Plain,
    /// Refuses a second event with the same version of an aggregate.
    Unique,
}

/// The versions that one reader of the store has accepted. A new reader starts with an empty memory, because it reads
/// unsettled events again.
#[derive(Debug)]
pub struct Memory(Recent<Aggregate, LetThrough>);

impl Default for Memory {
    fn default() -> Self {
        Self(Recent::new(AGGREGATES_MAX))
    }
}

pub(super) struct Versions {
    on_failure: OnFailure,
    store: Option<Arc<dyn AggregateVersions>>,
}

impl Versions {
    pub(super) fn new(on_failure: OnFailure, store: Option<Arc<dyn AggregateVersions>>) -> Self {
        Self { on_failure, store }
    }

    /// Adds to the findings. Events that another check has rejected are not accepted and do not count.
    pub(super) async fn look(
        &self,
        events: &[(Seq, &Event)],
        findings: &mut [Finding],
        memory: &mut Memory,
    ) -> Result<(), StoreError> {
        let looked_at: Vec<(usize, Aggregate, i64)> = events
            .iter()
            .enumerate()
            .filter(|(index, (_, event))| {
                findings[*index].rejection().is_none() && !event.headers.contains_key(wire::REPLAY_OF)
            })
            .filter_map(|(index, (_, event))| Some((index, aggregate(event), event.aggregate_version?)))
            .collect();
        self.remember(&looked_at, memory).await?;
        self.forget_the_dead(&looked_at, memory).await?;
        for (index, aggregate, version) in looked_at {
            let last = memory.0.get(&aggregate).copied();
            let seq = events[index].0;
            match last {
                Some(last) if version <= last.version => {
                    // An event that was written before the last one and is read again is in order.
                    if last.seq < seq {
                        add(&mut findings[index], self.failure(version, last.version));
                    }
                }
                _ => memory.0.insert(aggregate, LetThrough { version, seq }),
            }
        }
        Ok(())
    }

    /// Asks the store about the aggregates that are not remembered, with one query for a page.
    async fn remember(
        &self,
        looked_at: &[(usize, Aggregate, i64)],
        memory: &mut Memory,
    ) -> Result<(), StoreError> {
        let Some(store) = &self.store else {
            return Ok(());
        };
        let mut unknown: Vec<Aggregate> = Vec::new();
        for (_, aggregate, _) in looked_at {
            if memory.0.get(aggregate).is_none() {
                unknown.push(aggregate.clone());
            }
        }
        unknown.sort_unstable();
        unknown.dedup();
        if unknown.is_empty() {
            return Ok(());
        }
        let latest = store.latest(&unknown).await?;
        for (aggregate, latest) in unknown.into_iter().zip(latest) {
            if let Some(latest) = latest {
                memory.0.insert(aggregate, latest);
            }
        }
        Ok(())
    }

    /// An accepted event may have died since. Then it no longer counts.
    async fn forget_the_dead(
        &self,
        looked_at: &[(usize, Aggregate, i64)],
        memory: &mut Memory,
    ) -> Result<(), StoreError> {
        let Some(store) = &self.store else {
            return Ok(());
        };
        let mut in_the_way: HashMap<Seq, Aggregate> = HashMap::new();
        for (_, aggregate, version) in looked_at {
            if let Some(last) = memory.0.get(aggregate)
                && *version <= last.version
            {
                in_the_way.insert(last.seq, aggregate.clone());
            }
        }
        if in_the_way.is_empty() {
            return Ok(());
        }
        let seqs: Vec<Seq> = in_the_way.keys().copied().collect();
        for seq in store.dead_among(&seqs).await? {
            if let Some(aggregate) = in_the_way.remove(&seq) {
                memory.0.remove(&aggregate);
            }
        }
        self.remember(looked_at, memory).await
    }

    fn failure(&self, version: i64, last: i64) -> Failure {
        Failure {
            check: "aggregate_versions".to_owned(),
            path: "aggregate_version".to_owned(),
            problem: format!("{version} does not come after {last}, which was accepted before"),
            on_failure: self.on_failure,
        }
    }
}

fn aggregate(event: &Event) -> Aggregate {
    (event.aggregate_type.clone(), event.aggregate_id.clone())
}

fn add(finding: &mut Finding, failure: Failure) {
    match finding {
        Finding::Failed(failures) => failures.push(failure),
        // A warning must not let an event pass that another check could not check yet.
        Finding::Wait { .. } if failure.on_failure == OnFailure::Warn => {}
        other => *other = Finding::Failed(vec![failure]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_was_written_before_the_last_and_is_read_again_is_in_order() {
        let versions = Versions::new(OnFailure::Reject, None);
        let event = |version| {
            Event::to("t")
                .event_type("X")
                .aggregate("order", "a")
                .aggregate_version(version)
        };
        let (first, second) = (event(1), event(2));
        let mut memory = Memory::default();
        // The second was delayed and is in the side table. The first was never sent.
        let then = LetThrough { version: 2, seq: 20 };
        memory.0.insert(aggregate(&second), then);
        let mut findings = vec![Finding::Pass; 3];
        let events = [(10, &first), (21, &first), (22, &second)];
        versions.look(&events, &mut findings, &mut memory).await.unwrap();
        assert_eq!(findings[0], Finding::Pass);
        assert!(
            findings[1..]
                .iter()
                .all(|finding| matches!(finding, Finding::Failed(_)))
        );
    }
}
