//! Looks up delivered events at the other side: the contract, and the sample of what to look up.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use uuid::Uuid;

use super::SinkError;

/// At most this many events are looked up in one audit.
pub const AUDIT_EVENTS_MAX: usize = 200;

/// A sink that can look up what it has delivered.
#[async_trait]
pub trait Audit: Send + Sync + 'static {
    /// Looks up a sample of the events that were delivered since the last call: at most [`AUDIT_EVENTS_MAX`]. The first
    /// call only begins to take samples. An error means that the sink could not look; it says nothing about events.
    ///
    /// It never slows down `publish`, and it reads a bounded number of bytes.
    async fn audit(&self) -> Result<Audited, SinkError>;
}

/// What an audit found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audited {
    /// Events that were looked up. `expired` and `lost` are among them.
    pub checked: u64,
    /// Events that the other side has removed by its own limits.
    pub expired: u64,
    /// Events that were found a second time close by.
    pub copies: u64,
    /// Events that are gone, although no limit of the other side explains it.
    pub lost: Vec<Uuid>,
}

/// What became of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg(any(feature = "nats", feature = "kafka"))]
pub(crate) enum Fate {
    Found,
    Expired,
    Lost,
}

#[cfg(any(feature = "nats", feature = "kafka"))]
impl Audited {
    pub(crate) fn count(&mut self, id: Uuid, fate: Fate) {
        self.checked += 1;
        match fate {
            Fate::Found => {}
            Fate::Expired => self.expired += 1,
            Fate::Lost => self.lost.push(id),
        }
    }
}

/// Where each event was seen in one audit. An event at two places of one stream or partition is a copy.
#[derive(Default)]
#[cfg(any(feature = "nats", feature = "kafka"))]
pub(crate) struct Places(HashMap<Uuid, u64>);

#[cfg(any(feature = "nats", feature = "kafka"))]
impl Places {
    /// Whether the event was seen at another place before.
    pub(crate) fn is_copy(&mut self, id: Uuid, place: u64) -> bool {
        *self.0.entry(id).or_insert(place) != place
    }
}

/// Receipts of some of the latest events: a sample in which each batch since the last audit has the same chance.
pub(crate) struct Sample<R> {
    /// Nobody has asked for receipts yet, so none are kept.
    unused: AtomicBool,
    batches: AtomicU64,
    kept: Mutex<Vec<R>>,
}

/// The event of a batch whose receipt is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) index: usize,
    slot: usize,
}

impl<R> Default for Sample<R> {
    fn default() -> Self {
        Self {
            unused: AtomicBool::new(true),
            batches: AtomicU64::new(0),
            kept: Mutex::default(),
        }
    }
}

impl<R> Sample<R> {
    /// Chooses the event of a batch whose receipt is kept, if any. Costs one atomic operation for a batch.
    pub(crate) fn choose(&self, events: usize) -> Option<Chosen> {
        if events == 0 || self.unused.load(Ordering::Relaxed) {
            return None;
        }
        chosen(self.batches.fetch_add(1, Ordering::Relaxed), events)
    }

    pub(crate) fn keep(&self, chosen: Chosen, receipt: R) {
        let mut kept = self.kept();
        match kept.get_mut(chosen.slot) {
            Some(place) => *place = receipt,
            None => kept.push(receipt),
        }
    }

    /// The receipts since the last call.
    pub(crate) fn take(&self) -> Vec<R> {
        self.unused.store(false, Ordering::Relaxed);
        let mut kept = self.kept();
        self.batches.store(0, Ordering::Relaxed);
        std::mem::take(&mut *kept)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<R>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The n-th batch replaces a random receipt with the probability `AUDIT_EVENTS_MAX / n` (reservoir sampling).
fn chosen(n: u64, events: usize) -> Option<Chosen> {
    let max = AUDIT_EVENTS_MAX as u64;
    let slot = if n < max { n } else { scattered(n) % (n + 1) };
    (slot < max).then(|| Chosen {
        index: (scattered(!n) % events as u64) as usize,
        slot: slot as usize,
    })
}

/// SplitMix64: numbers that follow each other give numbers without a pattern.
fn scattered(n: u64) -> u64 {
    let mut z = n
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_until_somebody_asks() {
        let sample = Sample::default();
        assert_eq!(sample.choose(10), None);
        assert_eq!(sample.take(), Vec::<u64>::new());
        let chosen = sample.choose(1).unwrap();
        assert_eq!(chosen.index, 0);
        sample.keep(chosen, 7);
        assert_eq!(sample.take(), [7]);
        assert!(sample.take().is_empty());
        assert_eq!(sample.choose(0), None);
    }

    #[test]
    fn a_sample_is_bounded_and_spread_over_all_batches() {
        let sample = Sample::default();
        sample.take();
        let batches = 100 * AUDIT_EVENTS_MAX as u64;
        for batch in 0..batches {
            if let Some(chosen) = sample.choose(50) {
                assert!(chosen.index < 50);
                sample.keep(chosen, batch);
            }
        }
        let kept = sample.take();
        assert_eq!(kept.len(), AUDIT_EVENTS_MAX);
        for tenth in 0..10 {
            let range = batches / 10 * tenth..batches / 10 * (tenth + 1);
            let in_tenth = kept.iter().filter(|batch| range.contains(batch)).count();
            assert!(
                (5..40).contains(&in_tenth),
                "{in_tenth} of {} in {range:?}",
                kept.len()
            );
        }
    }

    #[test]
    fn the_event_of_a_batch_has_no_pattern() {
        let mut counts = [0; 10];
        for n in 0..AUDIT_EVENTS_MAX as u64 {
            counts[chosen(n, 10).unwrap().index] += 1;
        }
        assert!(counts.iter().all(|count| (8..40).contains(count)), "{counts:?}");
    }

    #[test]
    #[cfg(any(feature = "nats", feature = "kafka"))]
    fn an_event_at_two_places_is_a_copy_and_the_same_place_read_twice_is_not() {
        let (mut places, id) = (Places::default(), Uuid::now_v7());
        assert!(!places.is_copy(id, 1) && !places.is_copy(id, 1));
        assert!(!places.is_copy(Uuid::now_v7(), 2));
        assert!(places.is_copy(id, 2));
    }
}
