//! What an [`Outbox`](crate::Outbox) and its clones know of the collection that they write to.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use mongodb::Namespace;

use super::{Class, FRESH, KNOWN_FOR, OPEN_FOR, Place, RENEW_AFTER, look};

/// By the collection: the default database is the client's, so one outbox may write to several.
#[derive(Default)]
pub(crate) struct Knowledge(Mutex<HashMap<Namespace, Shared>>);

/// What is known of one collection.
#[derive(Clone, Default)]
pub(in crate::enqueue::mongodb) struct Shared(Arc<Mutex<Known>>);

impl Knowledge {
    pub(in crate::enqueue::mongodb) fn of(&self, collection: &Namespace) -> Shared {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get(collection) {
            Some(known) => known.clone(),
            None => all.entry(collection.clone()).or_default().clone(),
        }
    }
}

/// It has other holders, and is no part of what an outbox says of itself.
impl fmt::Debug for Knowledge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Knowledge")
    }
}

#[derive(Default)]
pub(super) struct Known {
    /// As they were last seen. That they were says that there is an outbox.
    pub(super) classes: Option<Classes>,
    /// The latest count of one's own.
    pub(super) counted: Option<Counted>,
    pub(super) written: Written,
    /// Held by who counts.
    pub(super) gate: Arc<tokio::sync::Mutex<()>>,
    /// Since when somebody asks in the background.
    renewing: Option<Instant>,
}

/// The classes of topics in their order; none where nothing is limited.
#[derive(Clone)]
pub(super) struct Classes {
    pub(super) all: Arc<[Class]>,
    pub(super) asked: Instant,
}

#[derive(Clone, Copy)]
pub(super) struct Counted {
    pub(super) pending: u64,
    pub(super) began: Instant,
    /// What had been written by then.
    pub(super) written: u64,
    pub(super) took: Duration,
}

impl Counted {
    /// Counting a large backlog takes long, and is not to be done all the time.
    pub(super) fn is_recent(&self) -> bool {
        self.began.elapsed() < RENEW_AFTER.max(self.took * 50).min(30 * RENEW_AFTER)
    }

    pub(super) fn is_good(&self) -> bool {
        self.began.elapsed() < KNOWN_FOR.max(self.took * 100).min(60 * RENEW_AFTER)
    }
}

impl Known {
    /// Of two that asked at once, the later knows more.
    pub(super) fn learn(&mut self, classes: Classes) -> Classes {
        let newer = self.classes.take().filter(|known| known.asked > classes.asked);
        self.classes.insert(newer.unwrap_or(classes)).clone()
    }

    fn is_to_be_renewed(&self, classes: &Classes) -> bool {
        // Whoever began may be gone with his runtime.
        let somebody_asks = self.renewing.is_some_and(|since| since.elapsed() < 2 * KNOWN_FOR);
        classes.asked.elapsed() > RENEW_AFTER && !somebody_asks
    }

    /// Not for too long, and not where figures that were fresh have become old or a count is needed and not there.
    fn is_enough(&self, classes: &Classes) -> bool {
        let figures = |class: &Class| {
            let counted = class.age >= FRESH && self.counted.is_some_and(|counted| counted.is_good());
            !class.is_old(classes.asked) || counted
        };
        classes.asked.elapsed() < KNOWN_FOR && classes.all.iter().all(figures)
    }
}

/// What was seen of the outbox by any of its clones, if that is enough.
pub(super) fn lately(at: &Place) -> Option<Classes> {
    let (classes, renew) = with(at, |known| {
        let classes = known.classes.clone().filter(|classes| known.is_enough(classes))?;
        let renew = known.is_to_be_renewed(&classes);
        if renew {
            known.renewing = Some(Instant::now());
        }
        Some((classes, renew))
    })?;
    if renew {
        let at = at.clone();
        tokio::spawn(async move {
            // Who finds too little known asks for himself, and is told what is wrong.
            let _ = look(&at).await;
            with(&at, |known| known.renewing = None);
        });
    }
    Some(classes)
}

pub(super) fn with<T>(at: &Place, act: impl FnOnce(&mut Known) -> T) -> T {
    // The values are whole whatever happened to another holder of the lock.
    act(&mut at.known.0.lock().unwrap_or_else(PoisonError::into_inner))
}

/// How many events were written here, and how many it had written at any time of the last seconds.
#[derive(Default)]
pub(super) struct Written {
    /// From old to new, and not many.
    spells: VecDeque<Spell>,
    /// Before the first of them.
    earlier: u64,
}

/// A short time in which something was written.
struct Spell {
    first: Instant,
    last: Instant,
    /// All that had been written at its end.
    total: u64,
}

impl Written {
    const SPELL: Duration = Duration::from_millis(50);
    /// Figures of before that are old.
    const KEPT_FOR: Duration = FRESH.saturating_add(KNOWN_FOR).saturating_add(OPEN_FOR);

    pub(super) fn total(&self) -> u64 {
        self.spells.back().map_or(self.earlier, |spell| spell.total)
    }

    pub(super) fn add(&mut self, events: u64) {
        self.add_at(Instant::now(), events);
    }

    fn add_at(&mut self, now: Instant, events: u64) {
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

    /// What is taken to have been committed before `then`, and so to be in what was counted at that time.
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

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_was_written_after_a_count_is_not_in_it() {
        let mut written = Written::default();
        let start = Instant::now() + SECOND;
        assert_eq!((written.total(), written.before(start)), (0, 0));
        for n in 0..60 {
            written.add_at(start + n * SECOND, 10);
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
            written.add_at(start + n * Duration::from_millis(1), 1);
        }
        assert!(written.spells.len() < 200, "{}", written.spells.len());
        assert_eq!(written.total(), 100_000);
    }
}
