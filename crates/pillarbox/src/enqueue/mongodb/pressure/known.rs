//! What an [`Outbox`](crate::Outbox) and its clones know about the collection that they write to.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use mongodb::Namespace;

use super::{Class, FRESH, KNOWN_FOR, OPEN_FOR, Place, RENEW_AFTER, clock::Clock, look};

/// One entry per collection: the default database depends on the client, so one outbox may write to several.
#[derive(Default)]
pub(crate) struct Knowledge {
    all: Mutex<HashMap<Namespace, Shared>>,
    clock: Clock,
}

/// What is known about one collection.
#[derive(Clone, Default)]
pub(in crate::enqueue::mongodb) struct Shared(Arc<Mutex<Known>>);

impl Knowledge {
    /// That ages by this clock.
    pub(crate) fn by(clock: Clock) -> Self {
        Self {
            clock,
            ..Self::default()
        }
    }

    pub(in crate::enqueue::mongodb) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(in crate::enqueue::mongodb) fn of(&self, collection: &Namespace) -> Shared {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get(collection) {
            Some(known) => known.clone(),
            None => all.entry(collection.clone()).or_default().clone(),
        }
    }
}

/// Prints only the name: the value is shared, and is not part of an outbox's own state.
impl fmt::Debug for Knowledge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Knowledge")
    }
}

#[derive(Default)]
pub(super) struct Known {
    /// The classes as last read. `Some` also means that the outbox exists.
    pub(super) classes: Option<Classes>,
    /// The latest count by this outbox itself.
    pub(super) counted: Option<Counted>,
    pub(super) written: Written,
    /// Held while counting.
    pub(super) gate: Arc<tokio::sync::Mutex<()>>,
    /// When the background refresh started.
    renewing: Option<Instant>,
}

/// The classes of topics in their order; empty if nothing is limited.
#[derive(Clone)]
pub(super) struct Classes {
    pub(super) all: Arc<[Class]>,
    pub(super) asked: Instant,
}

#[derive(Clone, Copy)]
pub(super) struct Counted {
    pub(super) pending: u64,
    pub(super) began: Instant,
    /// The events written by then.
    pub(super) written: u64,
    pub(super) took: Duration,
}

impl Counted {
    /// Counting a large backlog takes long, so it is not repeated too often.
    pub(super) fn is_recent(&self, now: Instant) -> bool {
        now - self.began < RENEW_AFTER.max(self.took * 50).min(30 * RENEW_AFTER)
    }

    pub(super) fn is_good(&self, now: Instant) -> bool {
        now - self.began < KNOWN_FOR.max(self.took * 100).min(60 * RENEW_AFTER)
    }
}

impl Known {
    /// If two callers read at the same time, the later read wins.
    pub(super) fn learn(&mut self, classes: Classes) -> Classes {
        let newer = self.classes.take().filter(|known| known.asked > classes.asked);
        self.classes.insert(newer.unwrap_or(classes)).clone()
    }

    pub(super) fn has_good_count(&self, now: Instant) -> bool {
        self.counted.is_some_and(|counted| counted.is_good(now))
    }

    fn is_to_be_renewed(&self, classes: &Classes, now: Instant) -> bool {
        // The task that started a refresh may have ended with its runtime.
        let somebody_asks = self.renewing.is_some_and(|since| now - since < 2 * KNOWN_FOR);
        now - classes.asked > RENEW_AFTER && !somebody_asks
    }

    /// The figures are not enough if they are too old, if they were fresh and have become old, or if a count
    /// is needed and missing.
    fn is_enough(&self, classes: &Classes, now: Instant) -> bool {
        let figures = |class: &Class| {
            let counted = class.age >= FRESH && self.has_good_count(now);
            !class.is_old(classes.asked, now) || counted
        };
        now - classes.asked < KNOWN_FOR && classes.all.iter().all(figures)
    }
}

/// The figures that any clone read last, if they are enough.
pub(super) fn lately(at: &Place) -> Option<Classes> {
    let now = at.clock.now();
    let (classes, renew) = with(at, |known| {
        let classes = known.classes.clone();
        let classes = classes.filter(|classes| known.is_enough(classes, now))?;
        let renew = known.is_to_be_renewed(&classes, now);
        if renew {
            known.renewing = Some(now);
        }
        Some((classes, renew))
    })?;
    if renew {
        let at = at.clone();
        tokio::spawn(async move {
            // Ignore the error: the next caller that needs newer figures reads them itself and gets it.
            let _ = look(&at).await;
            with(&at, |known| known.renewing = None);
        });
    }
    Some(classes)
}

pub(super) fn with<T>(at: &Place, act: impl FnOnce(&mut Known) -> T) -> T {
    // The values stay consistent even if another holder of the lock panicked.
    act(&mut at.known.0.lock().unwrap_or_else(PoisonError::into_inner))
}

/// How many events were written here in total, and at any time of the last seconds.
#[derive(Default)]
pub(super) struct Written {
    /// From old to new; there are only a few.
    spells: VecDeque<Spell>,
    /// The total before the first spell.
    earlier: u64,
}

/// A short time in which events were written.
struct Spell {
    first: Instant,
    last: Instant,
    /// The total at the end of the spell.
    total: u64,
}

impl Written {
    const SPELL: Duration = Duration::from_millis(50);
    /// Figures from before this time are too old to be used.
    const KEPT_FOR: Duration = FRESH.saturating_add(KNOWN_FOR).saturating_add(OPEN_FOR);

    pub(super) fn total(&self) -> u64 {
        self.spells.back().map_or(self.earlier, |spell| spell.total)
    }

    pub(super) fn add(&mut self, now: Instant, events: u64) {
        let total = self.total() + events;
        match self.spells.back_mut() {
            Some(spell) if now - spell.first < Self::SPELL => (spell.last, spell.total) = (now, total),
            _ => self.spells.push_back(Spell {
                first: now,
                last: now,
                total,
            }),
        }
        while let Some(spell) = self.spells.front()
            && now - spell.last > Self::KEPT_FOR
        {
            self.earlier = spell.total;
            self.spells.pop_front();
        }
    }

    /// The events that count as committed before `then`, and so are part of a count at that time.
    pub(super) fn before(&self, then: Instant) -> u64 {
        let Some(then) = then.checked_sub(OPEN_FOR) else {
            return 0;
        };
        let over = self.spells.partition_point(|spell| spell.last <= then);
        let last = over.checked_sub(1).map(|last| &self.spells[last]);
        last.map_or(self.earlier, |spell| spell.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pressure::Limit;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn events_written_after_a_count_are_not_in_it() {
        let mut written = Written::default();
        let start = Instant::now() + SECOND;
        assert_eq!((written.total(), written.before(start)), (0, 0));
        for n in 0..60 {
            written.add(start + n * SECOND, 10);
        }
        let now = start + 59 * SECOND;
        assert_eq!(written.total(), 600);
        assert_eq!(written.before(now), 590, "the last may have been open");
        assert_eq!(written.before(now + SECOND), 600);
        assert_eq!(written.before(now - 3 * SECOND), 560);
        assert!(
            written.before(now - 50 * SECOND) <= 600 - 80,
            "what is not kept is old"
        );
        assert!(written.spells.len() < 12);
    }

    #[test]
    fn little_is_kept_however_often_something_is_written() {
        let (mut written, start) = (Written::default(), Instant::now());
        for n in 0..100_000 {
            written.add(start + n * Duration::from_millis(1), 1);
        }
        assert!(written.spells.len() < 200, "{}", written.spells.len());
        assert_eq!(written.total(), 100_000);
    }

    /// Of one class with a limit, whose figures were this old when they were asked for.
    fn classes(asked: Instant, age: Duration) -> Classes {
        let limit = Limit {
            soft: None,
            hard: Some(10),
            max_delay: Duration::ZERO,
        };
        let class = Class {
            name: "all".into(),
            patterns: Vec::new(),
            limit,
            pending: 0,
            oldest: None,
            drained: 0.0,
            age,
        };
        Classes {
            all: Arc::new([class]),
            asked,
        }
    }

    fn counted(began: Instant, took: Duration) -> Counted {
        Counted {
            pending: 0,
            began,
            written: 0,
            took,
        }
    }

    #[test]
    fn that_nothing_is_limited_is_known_for_some_seconds() {
        let asked = Instant::now();
        let nothing = Classes {
            all: Arc::new([]),
            asked,
        };
        let known = Known::default();
        assert!(known.is_enough(&nothing, asked + KNOWN_FOR - Duration::from_nanos(1)));
        assert!(!known.is_enough(&nothing, asked + KNOWN_FOR));
    }

    #[test]
    fn figures_are_enough_until_they_are_old() {
        let (known, asked) = (Known::default(), Instant::now());
        let classes = classes(asked, SECOND);
        assert!(known.is_enough(&classes, asked + FRESH - SECOND - Duration::from_nanos(1)));
        assert!(!known.is_enough(&classes, asked + FRESH - SECOND));
    }

    #[test]
    fn where_the_relay_is_silent_a_count_of_ones_own_is_enough_for_some_seconds() {
        let asked = Instant::now();
        let mut known = Known::default();
        let classes = classes(asked, FRESH);
        assert!(!known.is_enough(&classes, asked), "nothing was counted");
        known.counted = Some(counted(asked, Duration::ZERO));
        assert!(known.is_enough(&classes, asked + KNOWN_FOR - Duration::from_nanos(1)));
        assert!(!known.is_enough(&classes, asked + KNOWN_FOR));
    }

    #[test]
    fn a_count_that_took_long_is_used_for_longer() {
        let began = Instant::now();
        let (quick, slow) = (counted(began, Duration::ZERO), counted(began, SECOND / 2));
        assert!(!quick.is_recent(began + RENEW_AFTER) && slow.is_recent(began + 24 * SECOND));
        assert!(!quick.is_good(began + KNOWN_FOR) && slow.is_good(began + 49 * SECOND));
    }

    #[test]
    fn one_caller_at_a_time_renews_the_figures() {
        let asked = Instant::now();
        let mut known = Known::default();
        let classes = classes(asked, Duration::ZERO);
        let later = asked + RENEW_AFTER + Duration::from_nanos(1);
        assert!(!known.is_to_be_renewed(&classes, asked + RENEW_AFTER));
        assert!(known.is_to_be_renewed(&classes, later));
        known.renewing = Some(later);
        assert!(!known.is_to_be_renewed(&classes, later + SECOND));
        assert!(
            known.is_to_be_renewed(&classes, later + 2 * KNOWN_FOR),
            "whoever asked is gone"
        );
    }
}
