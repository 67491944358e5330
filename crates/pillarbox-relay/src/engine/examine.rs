//! Runs the checks before events enter the window. Says which events must not be delivered, and why.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::{
    check::{Checks, Finding, versions::Memory},
    event::{Seq, StoredEvent},
    store::StoreError,
};

/// The events that must not be delivered now. All others passed, or nothing is checked.
pub(super) type Objections = HashMap<Seq, Objection>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Objection {
    /// The event failed a check and becomes a dead letter.
    Reject { error: String },
    /// The event can't be checked now. It waits in the side table and is checked again.
    Wait { error: String, retry_in: Duration },
}

/// Something read from the store, and the results of its checks.
#[derive(Debug, Default)]
pub(super) struct Examined<T> {
    pub(super) found: T,
    pub(super) objections: Objections,
}

/// The checks of one reader.
pub(super) struct Examiner {
    checks: Option<Arc<Checks>>,
    memory: Memory,
}

impl Examiner {
    pub(super) fn new(checks: Option<Arc<Checks>>) -> Self {
        Self {
            checks,
            memory: Memory::default(),
        }
    }

    /// Checks events that discovery returned.
    pub(super) async fn look<'e>(
        &mut self,
        events: impl Iterator<Item = &'e StoredEvent>,
    ) -> Result<Objections, StoreError> {
        match &self.checks {
            Some(checks) => objections(checks, events, Some(&mut self.memory)).await,
            None => Ok(Objections::new()),
        }
    }
}

/// Checks events that were admitted before, or should have been. The versions of their aggregates are not checked
/// again.
pub(super) async fn again<'e>(
    checks: Option<&Arc<Checks>>,
    events: impl Iterator<Item = &'e StoredEvent>,
) -> Result<Objections, StoreError> {
    match checks {
        Some(checks) => objections(checks, events, None).await,
        None => Ok(Objections::new()),
    }
}

async fn objections<'e>(
    checks: &Checks,
    events: impl Iterator<Item = &'e StoredEvent>,
    memory: Option<&mut Memory>,
) -> Result<Objections, StoreError> {
    let events: Vec<_> = events.map(|event| (event.seq, &event.event)).collect();
    let findings = checks.look(&events, memory).await?;
    let mut objections = Objections::new();
    for ((seq, event), finding) in events.into_iter().zip(findings) {
        if let Some(error) = finding.rejection() {
            objections.insert(seq, Objection::Reject { error });
        } else {
            checks.warn(event, &finding);
            if let Finding::Wait { error, retry_in } = finding {
                objections.insert(seq, Objection::Wait { error, retry_in });
            }
        }
    }
    Ok(objections)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use pillarbox::Event;

    use super::*;
    use crate::check::{CheckOptions, OnFailure, rules::RuleOptions};

    #[tokio::test]
    async fn an_event_is_warned_of_once_however_often_it_is_looked_at() {
        let rule = RuleOptions {
            name: "never".into(),
            event_type: "*".into(),
            rule: "false".into(),
            message: None,
            on_failure: OnFailure::Warn,
        };
        let options = CheckOptions {
            rules: vec![rule],
            ..CheckOptions::default()
        };
        let checks = Arc::new(Checks::new(&options, None).unwrap());
        let event = StoredEvent {
            seq: 1,
            lane: 0,
            attempts: 0,
            created_at: Timestamp::UNIX_EPOCH,
            event: Event::to("t")
                .event_type("X")
                .aggregate("a", "1")
                .json(&1)
                .unwrap(),
        };
        let mut examiner = Examiner::new(Some(checks.clone()));
        assert!(examiner.look([&event].into_iter()).await.unwrap().is_empty());
        for _ in 0..3 {
            let objections = again(Some(&checks), [&event].into_iter()).await.unwrap();
            assert!(objections.is_empty());
        }
        assert_eq!(checks.warned(), 1);
        // An event that waited for its schema causes a warning once it can be checked.
        let mut waited = event.clone();
        waited.event = Event::to("t")
            .event_type("X")
            .aggregate("a", "2")
            .json(&1)
            .unwrap();
        again(Some(&checks), [&waited].into_iter()).await.unwrap();
        assert_eq!(checks.warned(), 2);
    }
}
