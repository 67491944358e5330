//! An outbox in memory, for unit tests of applications: no database, the same checks.
//!
//! ```
//! use pillarbox::{Event, Outbox, Transaction, testing::Recorded};
//!
//! // The application's code takes any transaction …
//! async fn place(tx: &mut impl Transaction, order: &str) -> Result<(), pillarbox::EnqueueError> {
//!     let event = Event::to("shop.order.placed").event_type("OrderPlaced").aggregate("order", order);
//!     Outbox::default().enqueue(tx, &event).await.map(drop)
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! // … and its test gives it this one.
//! let recorded = Recorded::default();
//! let mut tx = recorded.begin();
//! place(&mut tx, "o-1").await.unwrap();
//! assert!(recorded.committed().is_empty());
//! tx.commit();
//! assert_eq!(recorded.committed()[0].aggregate_id, "o-1");
//! # });
//! ```

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    enqueue::{EnqueueError, Enqueued, Outbox},
    event::Event,
    pressure::Pressure,
    transaction::{Transaction, sealed},
};

/// The committed events. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Recorded(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    committed: Vec<Event>,
    rolled_back: Vec<Event>,
    failures: VecDeque<EnqueueError>,
    pressure: Option<Pressure>,
}

/// An open transaction. If it is dropped without a commit, it is rolled back.
#[derive(Debug)]
pub struct RecordedTransaction {
    recorded: Recorded,
    events: Vec<Event>,
}

impl Recorded {
    /// Begins a transaction.
    pub fn begin(&self) -> RecordedTransaction {
        RecordedTransaction {
            recorded: self.clone(),
            events: Vec::new(),
        }
    }

    /// Events of committed transactions, in the order of the commits.
    pub fn committed(&self) -> Vec<Event> {
        self.state().committed.clone()
    }

    /// The committed events of a topic.
    pub fn committed_to(&self, topic: &str) -> Vec<Event> {
        let mut events = self.committed();
        events.retain(|event| event.topic == topic);
        events
    }

    /// Events of transactions that were rolled back. They will never be delivered.
    pub fn rolled_back(&self) -> Vec<Event> {
        self.state().rolled_back.clone()
    }

    /// Lets the next `enqueue` whose events pass the checks fail with this error, to test how the application
    /// reacts.
    pub fn fail_next(&self, error: EnqueueError) {
        self.state().failures.push_back(error);
    }

    /// Sets the pressure for all topics. If it says `refused`, `enqueue` refuses.
    pub fn set_pressure(&self, pressure: Option<Pressure>) {
        self.state().pressure = pressure;
    }

    /// The values stay consistent even if another holder of the lock panicked.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordedTransaction {
    /// Commits: the events count as written from now on.
    pub fn commit(mut self) {
        let events = std::mem::take(&mut self.events);
        let committed = &mut self.recorded.state().committed;
        for event in events {
            // If two open transactions have the same id, a database lets the second wait and then writes
            // nothing.
            if !committed.iter().any(|known| known.id == event.id) {
                committed.push(event);
            }
        }
    }

    /// The same as dropping it.
    pub fn rollback(self) {}

    /// What this transaction has written so far.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

impl Drop for RecordedTransaction {
    fn drop(&mut self) {
        let events = std::mem::take(&mut self.events);
        self.recorded.state().rolled_back.extend(events);
    }
}

impl Transaction for RecordedTransaction {}

impl sealed::Write for RecordedTransaction {
    async fn insert(&mut self, _: &Outbox, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        let mut state = self.recorded.state();
        if let Some(error) = state.failures.pop_front() {
            return Err(error);
        }
        if let Some(busy) = state.pressure.as_ref().and_then(EnqueueError::busy) {
            return Err(busy);
        }
        let mut enqueued = Vec::with_capacity(events.len());
        for event in events {
            let there = |known: &[Event]| known.iter().any(|known| known.id == event.id);
            enqueued.push(match there(&self.events) || there(&state.committed) {
                true => Enqueued::Duplicate,
                false => {
                    self.events.push(event.clone());
                    Enqueued::New
                }
            });
        }
        Ok(enqueued)
    }

    async fn pressure(&mut self, _: &Outbox, _: &str) -> Result<Option<Pressure>, EnqueueError> {
        Ok(self.recorded.state().pressure.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::pressure::Limit;

    fn event(topic: &str) -> Event {
        Event::to(topic).event_type("X").aggregate("thing", "1")
    }

    #[tokio::test]
    async fn only_committed_events_count() {
        let (recorded, outbox) = (Recorded::default(), Outbox::default());
        let kept = [event("t.a"), event("t.b")];
        let mut tx = recorded.begin();
        outbox.enqueue_all(&mut tx, &kept).await.unwrap();
        assert_eq!(tx.events(), kept);
        assert!(recorded.committed().is_empty());
        tx.commit();
        let lost = event("t.a");
        let mut tx = recorded.begin();
        outbox.enqueue(&mut tx, &lost).await.unwrap();
        drop(tx);
        assert_eq!(recorded.committed(), kept);
        assert_eq!(recorded.rolled_back(), [lost]);
        assert_eq!(recorded.committed_to("t.b"), [kept[1].clone()]);
    }

    #[tokio::test]
    async fn the_same_checks_run_and_an_id_counts_once() {
        let (recorded, outbox) = (Recorded::default(), Outbox::default());
        let mut tx = recorded.begin();
        let bad = [event("t.a"), event("")];
        let refused = outbox.enqueue_all(&mut tx, &bad).await;
        assert!(
            matches!(refused, Err(EnqueueError::Refused { index: 1, .. })),
            "{refused:?}"
        );
        assert!(tx.events().is_empty());
        let twice = event("t.a");
        assert_eq!(outbox.enqueue(&mut tx, &twice).await.unwrap(), Enqueued::New);
        assert_eq!(
            outbox.enqueue(&mut tx, &twice).await.unwrap(),
            Enqueued::Duplicate
        );
        tx.commit();
        let mut tx = recorded.begin();
        assert_eq!(
            outbox.enqueue(&mut tx, &twice).await.unwrap(),
            Enqueued::Duplicate
        );
        let both = event("t.b");
        let (mut first, mut second) = (recorded.begin(), recorded.begin());
        outbox.enqueue(&mut first, &both).await.unwrap();
        outbox.enqueue(&mut second, &both).await.unwrap();
        first.commit();
        second.commit();
        assert_eq!(recorded.committed_to("t.b"), [both]);
    }

    #[tokio::test]
    async fn an_application_can_try_how_it_takes_a_refusal() {
        let (recorded, outbox) = (Recorded::default(), Outbox::default());
        let mut tx = recorded.begin();
        recorded.fail_next(EnqueueError::NoTransaction);
        assert!(matches!(
            outbox.enqueue(&mut tx, &event("t")).await,
            Err(EnqueueError::NoTransaction)
        ));
        let limit = Limit {
            soft: None,
            hard: Some(10),
            max_delay: Duration::ZERO,
        };
        recorded.set_pressure(Some(limit.judge("bulk", 12, None, None)));
        assert!(outbox.pressure(&mut tx, "t").await.unwrap().unwrap().refused);
        let busy = outbox.enqueue(&mut tx, &event("t")).await;
        assert!(
            matches!(
                busy,
                Err(EnqueueError::Busy {
                    pending: 12,
                    limit: 10,
                    ..
                })
            ),
            "{busy:?}"
        );
        recorded.set_pressure(None);
        assert_eq!(outbox.enqueue(&mut tx, &event("t")).await.unwrap(), Enqueued::New);
    }
}
