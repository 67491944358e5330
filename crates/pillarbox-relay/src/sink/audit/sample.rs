//! Chooses which delivered events an audit looks up, and keeps what it has not judged.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::{AUDIT_EVENTS_MAX, Audited, Entry, Judged};

/// Receipts of some of the latest events: a sample in which each batch since the last audit has the same chance.
pub(crate) struct Sample<R> {
    /// Nobody has asked for receipts yet, so none are kept.
    unused: AtomicBool,
    batches: AtomicU64,
    kept: Mutex<Vec<R>>,
    /// What an audit has begun to look up, and what it left for the next one.
    open: Mutex<Vec<Entry<R>>>,
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
            open: Mutex::default(),
        }
    }
}

impl<R: Clone> Sample<R> {
    /// Chooses the event of a batch whose receipt is kept, if any. Costs one atomic operation for a batch.
    pub(crate) fn choose(&self, events: usize) -> Option<Chosen> {
        if events == 0 || self.unused.load(Ordering::Relaxed) {
            return None;
        }
        chosen(self.batches.fetch_add(1, Ordering::Relaxed), events)
    }

    pub(crate) fn keep(&self, chosen: Chosen, receipt: R) {
        let mut kept = lock(&self.kept);
        match kept.get_mut(chosen.slot) {
            Some(place) => *place = receipt,
            None => kept.push(receipt),
        }
    }

    /// What to look up now: what the last audit left, and receipts since then. It stays open until [`Self::close`], so
    /// that an audit that fails or is interrupted loses nothing.
    pub(crate) fn open(&self) -> Vec<Entry<R>> {
        self.unused.store(false, Ordering::Relaxed);
        let fresh = {
            let mut kept = lock(&self.kept);
            self.batches.store(0, Ordering::Relaxed);
            std::mem::take(&mut *kept)
        };
        let mut open = lock(&self.open);
        let missed = false;
        open.extend(fresh.into_iter().map(|receipt| Entry { receipt, missed }));
        open.truncate(AUDIT_EVENTS_MAX);
        open.clone()
    }

    /// The audit has ended.
    pub(crate) fn close(&self, judged: Judged<R>) -> Audited {
        let (audited, again) = judged.again();
        *lock(&self.open) = again;
        audited
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn entry(receipt: u64) -> Entry<u64> {
        let missed = false;
        Entry { receipt, missed }
    }

    #[test]
    fn nothing_is_kept_until_somebody_asks() {
        let sample = Sample::default();
        assert_eq!(sample.choose(10), None);
        assert_eq!(sample.open(), Vec::<Entry<u64>>::new());
        let chosen = sample.choose(1).unwrap();
        assert_eq!(chosen.index, 0);
        sample.keep(chosen, 7);
        assert_eq!(sample.open(), [entry(7)]);
        assert_eq!(sample.open(), [entry(7)], "nobody has judged it");
        assert_eq!(sample.choose(0), None);
    }

    #[test]
    fn a_sample_is_bounded_and_spread_over_all_batches() {
        let sample = Sample::default();
        sample.open();
        let batches = 100 * AUDIT_EVENTS_MAX as u64;
        for batch in 0..batches {
            if let Some(chosen) = sample.choose(50) {
                assert!(chosen.index < 50);
                sample.keep(chosen, batch);
            }
        }
        let kept = sample.open();
        assert_eq!(kept.len(), AUDIT_EVENTS_MAX);
        for tenth in 0..10 {
            let range = batches / 10 * tenth..batches / 10 * (tenth + 1);
            let in_tenth = kept.iter().filter(|entry| range.contains(&entry.receipt)).count();
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
}
