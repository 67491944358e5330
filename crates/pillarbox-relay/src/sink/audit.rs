//! Looks up delivered events at the other side: the contract, and the sample of what to look up.

#[cfg(any(feature = "nats", feature = "kafka"))]
mod sample;

#[cfg(any(feature = "nats", feature = "kafka"))]
use std::collections::HashMap;

use async_trait::async_trait;
use pillarbox::EventId;

#[cfg(any(feature = "nats", feature = "kafka"))]
pub(crate) use self::sample::{Chosen, Sample};

/// At most this many events are looked up in one audit.
pub const AUDIT_EVENTS_MAX: usize = 200;
/// At most this many events that could not be looked up are kept for the next audit. So the next audit has room for
/// others.
#[cfg(any(feature = "nats", feature = "kafka"))]
const UNREAD_MAX: usize = AUDIT_EVENTS_MAX / 2;

/// A sink that can look up what it has delivered.
#[async_trait]
pub trait Audit: Send + Sync + 'static {
    /// Looks up a sample of the events that were delivered since the last call: at most [`AUDIT_EVENTS_MAX`]. The first
    /// call only begins to take samples.
    ///
    /// Events that it can't look up say nothing: `problems` has the reasons, and the next call looks them up again, as
    /// far as there is room. It also looks up again those that seem to be gone: only then they are `lost`.
    ///
    /// It never slows down `publish`, and it reads a bounded number of bytes.
    async fn audit(&self) -> Audited;
}

/// What an audit found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audited {
    /// Events that were looked up and judged. `expired` and `lost` are among them.
    pub checked: u64,
    /// Events that the other side has removed by its own limits.
    pub expired: u64,
    /// Events that were found a second time close by.
    pub copies: u64,
    /// Events that are gone, although no limit of the other side explains it. Two audits did not find them.
    pub lost: Vec<EventId>,
    /// What could not be looked up: at most one problem for each stream or topic.
    pub problems: Vec<AuditProblem>,
}

/// Why some events could not be looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditProblem {
    /// The stream or topic. `None`: the whole sink.
    pub place: Option<String>,
    pub why: String,
}

impl Audited {
    /// Nothing could be looked up.
    pub(crate) fn nothing(why: impl Into<String>) -> Self {
        let (place, why) = (None, why.into());
        Self {
            problems: vec![AuditProblem { place, why }],
            ..Self::default()
        }
    }
}

/// What became of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg(any(feature = "nats", feature = "kafka"))]
pub(crate) enum Fate {
    Found,
    Expired,
    Lost,
}

/// An event to look up.
#[cfg(any(feature = "nats", feature = "kafka"))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry<R> {
    pub(crate) receipt: R,
    /// The audit before did not find it. It can be a race, so it is looked up twice.
    pub(crate) missed: bool,
}

/// The result of an audit, and what the next audit looks up again.
#[cfg(any(feature = "nats", feature = "kafka"))]
pub(crate) struct Judged<R> {
    pub(crate) audited: Audited,
    missed: Vec<Entry<R>>,
    unread: Vec<Entry<R>>,
}

#[cfg(any(feature = "nats", feature = "kafka"))]
impl<R> Default for Judged<R> {
    fn default() -> Self {
        Self {
            audited: Audited::default(),
            missed: Vec::new(),
            unread: Vec::new(),
        }
    }
}

#[cfg(any(feature = "nats", feature = "kafka"))]
impl<R> Judged<R> {
    pub(crate) fn judge(&mut self, id: EventId, entry: Entry<R>, fate: Fate) {
        if fate == Fate::Lost && !entry.missed {
            let missed = true;
            return self.missed.push(Entry { missed, ..entry });
        }
        self.audited.checked += 1;
        match fate {
            Fate::Found => {}
            Fate::Expired => self.audited.expired += 1,
            Fate::Lost => self.audited.lost.push(id),
        }
    }

    /// It could not be looked up.
    pub(crate) fn unread(&mut self, entry: Entry<R>) {
        self.unread.push(entry);
    }

    /// Only the first problem of a place is kept.
    pub(crate) fn problem(&mut self, place: &str, why: String) {
        let problems = &mut self.audited.problems;
        let place = Some(place.to_owned());
        if problems.iter().all(|known| known.place != place) {
            problems.push(AuditProblem { place, why });
        }
    }

    /// Those that seem lost, and as many of the others as there is room for.
    fn again(self) -> (Audited, Vec<Entry<R>>) {
        let mut again = self.missed;
        // Of every place the same share, so that one that is never readable does not displace the others.
        let (unread, room) = (self.unread.len(), self.unread.len().min(UNREAD_MAX));
        let is_kept = |index: usize| (index + 1) * room / unread != index * room / unread;
        let unread = self.unread.into_iter().enumerate();
        again.extend(
            unread
                .filter(|(index, _)| is_kept(*index))
                .map(|(_, entry)| entry),
        );
        (self.audited, again)
    }
}

/// Where each event was seen in one audit. An event at two places of one stream or partition is a copy.
#[derive(Default)]
#[cfg(any(feature = "nats", feature = "kafka"))]
pub(crate) struct Places(HashMap<EventId, u64>);

#[cfg(any(feature = "nats", feature = "kafka"))]
impl Places {
    /// Another place at which the event was seen before.
    pub(crate) fn before(&mut self, id: EventId, place: u64) -> Option<u64> {
        let first = *self.0.entry(id).or_insert(place);
        (first != place).then_some(first)
    }
}

#[cfg(all(test, any(feature = "nats", feature = "kafka")))]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_lost_if_two_audits_miss_it() {
        let (sample, ids) = (Sample::default(), [(); 3].map(|()| EventId::new()));
        sample.open();
        for id in ids.clone() {
            sample.keep(sample.choose(1).unwrap(), id);
        }
        let mut first = Judged::default();
        for entry in sample.open() {
            first.judge(entry.receipt.clone(), entry, Fate::Lost);
        }
        assert_eq!(sample.close(first), Audited::default());
        let mut second = Judged::default();
        for (entry, fate) in sample
            .open()
            .into_iter()
            .zip([Fate::Found, Fate::Lost, Fate::Expired])
        {
            second.judge(entry.receipt.clone(), entry, fate);
        }
        let judged = Audited {
            checked: 3,
            expired: 1,
            lost: vec![ids[1].clone()],
            ..Audited::default()
        };
        assert_eq!(sample.close(second), judged);
        assert!(sample.open().is_empty(), "each is judged once");
    }

    #[test]
    fn what_can_not_be_read_is_kept_in_a_bounded_number_and_leaves_room_for_others() {
        let sample = Sample::default();
        sample.open();
        for round in 0..5_usize {
            for n in 0..AUDIT_EVENTS_MAX {
                sample.keep(sample.choose(1).unwrap(), (round, n));
            }
            let open = sample.open();
            assert_eq!(open.len(), AUDIT_EVENTS_MAX);
            assert!(open.iter().filter(|entry| entry.receipt.0 == round).count() >= AUDIT_EVENTS_MAX / 2);
            let mut judged = Judged::default();
            for entry in open {
                judged.unread(entry);
            }
            judged.problem("s", "away".into());
            judged.problem("s", "still away".into());
            assert_eq!(sample.close(judged).problems.len(), 1);
        }
        // One that seems lost is never dropped for those that can't be read.
        let mut judged = Judged::default();
        for (n, entry) in sample.open().into_iter().enumerate() {
            match n % 2 {
                0 => judged.judge("x".into(), entry, Fate::Lost),
                _ => judged.unread(entry),
            }
        }
        let missed = judged.missed.len();
        sample.close(judged);
        assert_eq!(sample.open().iter().filter(|entry| entry.missed).count(), missed);
    }

    #[test]
    fn an_event_at_two_places_is_a_copy_and_the_same_place_read_twice_is_not() {
        let (mut places, id) = (Places::default(), EventId::new());
        assert_eq!(
            (places.before(id.clone(), 1), places.before(id.clone(), 1)),
            (None, None)
        );
        assert_eq!(places.before(EventId::new(), 2), None);
        assert_eq!(places.before(id, 2), Some(1));
    }
}
