//! The delivery ledger: compares what producers committed and rolled back with what receivers saw.
//!
//! It checks the promises: everything committed was seen, nothing else was, and each key in the order of its
//! commits. Copies are counted separately, because some receivers may see them (a plain subscriber) and
//! others may not (behind a broker that drops copies).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pillarbox::EventId;

/// The number of examples of each fault in a failure message.
const EXAMPLES_MAX: usize = 5;

/// Many tasks record at once; the [`Verdict`] comes at the end.
#[derive(Debug, Default)]
pub struct Ledger {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    committed: HashMap<EventId, (String, u64)>,
    rolled_back: HashSet<EventId>,
    /// Until the database has shown whether they exist.
    undecided: HashMap<EventId, (String, u64)>,
    /// How many there were.
    in_doubt: usize,
    seen: Vec<EventId>,
}

impl Ledger {
    pub fn new() -> Self {
        Self::default()
    }

    /// The event is in the database. It is number `nth` of its key, counted by the producer in the order of
    /// commits.
    pub fn committed(&self, id: impl Into<EventId>, key: &str, nth: u64) {
        self.pages().committed.insert(id.into(), (key.to_owned(), nth));
    }

    /// The transaction of the event was rolled back: no receiver may ever see it.
    pub fn rolled_back(&self, id: impl Into<EventId>) {
        self.pages().rolled_back.insert(id.into());
    }

    /// The commit was sent and got no answer: the database decides later. See [`Ledger::decide`].
    pub fn in_doubt(&self, id: impl Into<EventId>, key: &str, nth: u64) {
        let mut pages = self.pages();
        pages.undecided.insert(id.into(), (key.to_owned(), nth));
        pages.in_doubt += 1;
    }

    /// The events to look up in the database.
    pub fn undecided(&self) -> Vec<EventId> {
        self.pages().undecided.keys().cloned().collect()
    }

    /// Tells which of the undecided events the database has. The others were never committed.
    pub fn decide(&self, there: &HashSet<EventId>) {
        let mut pages = self.pages();
        for (id, place) in std::mem::take(&mut pages.undecided) {
            if there.contains(&id) {
                pages.committed.insert(id, place);
            } else {
                pages.rolled_back.insert(id);
            }
        }
    }

    /// A receiver got the event. The order of these calls is the order of receiving.
    pub fn seen(&self, id: impl Into<EventId>) {
        self.pages().seen.push(id.into());
    }

    /// How many committed events were seen so far. Tests wait for this before they ask for the verdict.
    pub fn committed_and_seen(&self) -> usize {
        let pages = self.pages();
        let seen: HashSet<_> = pages
            .seen
            .iter()
            .filter(|id| pages.committed.contains_key(id))
            .collect();
        seen.len()
    }

    /// How many were committed so far.
    pub fn committed_count(&self) -> usize {
        self.pages().committed.len()
    }

    pub fn verdict(&self) -> Verdict {
        self.pages().verdict()
    }

    /// # Panics
    /// If something was lost, seen without having been committed, or out of order. Copies are allowed; see
    /// [`Verdict::duplicated`].
    #[track_caller]
    pub fn assert_whole(&self) {
        let verdict = self.verdict();
        assert!(verdict.is_whole(), "{verdict}");
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ledger's verdict. The numbers count events, except `duplicated`, which counts receipts beyond the
/// first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    pub committed: usize,
    pub rolled_back: usize,
    /// Events whose commit got no answer. They also count as committed or rolled back, once the database has
    /// shown which.
    pub in_doubt: usize,
    /// Distinct events that were seen.
    pub seen: usize,
    pub lost: usize,
    pub duplicated: usize,
    /// Rolled back, or of unknown origin.
    pub never_committed_but_seen: usize,
    /// First receipts that came after a later event of the same key.
    pub order_violations: usize,
    /// The first few examples of each fault, as text.
    pub examples: Vec<String>,
}

impl Verdict {
    pub fn is_whole(&self) -> bool {
        self.lost == 0 && self.never_committed_but_seen == 0 && self.order_violations == 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} committed, {} seen, {} lost, {} duplicated, {} never committed but seen, {} out of order",
            self.committed,
            self.seen,
            self.lost,
            self.duplicated,
            self.never_committed_but_seen,
            self.order_violations
        )?;
        for example in &self.examples {
            write!(out, "\n  {example}")?;
        }
        Ok(())
    }
}

impl Pages {
    fn verdict(&self) -> Verdict {
        let mut verdict = Verdict {
            committed: self.committed.len(),
            rolled_back: self.rolled_back.len(),
            in_doubt: self.in_doubt,
            ..Verdict::default()
        };
        let mut strangers = Examples::default();
        let mut disorder = Examples::default();
        let mut first_sightings = HashSet::new();
        let mut latest_of_key: HashMap<&str, u64> = HashMap::new();

        for (position, id) in self.seen.iter().enumerate() {
            if !first_sightings.insert(id) {
                verdict.duplicated += 1;
                continue;
            }
            let Some((key, nth)) = self.committed.get(id) else {
                let why = if self.rolled_back.contains(id) {
                    "rolled back"
                } else {
                    "unknown"
                };
                strangers.add(|| format!("{why} but seen: {id}, sighting {position}"));
                continue;
            };
            let latest = latest_of_key.entry(key).or_insert(*nth);
            if *nth < *latest {
                disorder.add(|| {
                    format!("out of order: {nth} of key {key} after {latest}, {id}, sighting {position}")
                });
            }
            *latest = (*latest).max(*nth);
        }

        let mut lost: Vec<_> = self
            .committed
            .iter()
            .filter(|(id, _)| !first_sightings.contains(id))
            .collect();
        lost.sort_by_key(|(_, (key, nth))| (key, nth));
        let mut missing = Examples::default();
        for (id, (key, nth)) in lost {
            missing.add(|| format!("lost: {nth} of key {key}, {id}"));
        }

        verdict.seen = first_sightings.len();
        verdict.lost = missing.count;
        verdict.never_committed_but_seen = strangers.count;
        verdict.order_violations = disorder.count;
        verdict.examples = [missing, strangers, disorder]
            .into_iter()
            .flat_map(|it| it.first)
            .collect();
        verdict
    }
}

#[derive(Default)]
struct Examples {
    count: usize,
    first: Vec<String>,
}

impl Examples {
    fn add(&mut self, words: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < EXAMPLES_MAX {
            self.first.push(words());
        }
    }
}

#[cfg(test)]
mod tests;
