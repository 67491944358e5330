//! Whether an event's id may be in an outbox already.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering, fence},
    },
};

use uuid::Uuid;

/// An id that `Event::to` made is in no outbox before its event is first written, so nobody has to look for it there.
///
/// All copies of an event share what is known of its id. One of them may skip the look if
/// - the event still has the id that was made with it,
/// - no other copy exists: one that is written at the same time could be committed first, and
/// - none was written before: that is in `used`, which outlives the copy that was written.
///
/// Any of several copies may be written first, or all of them at once, so while there are several, each is looked for.
/// Copying changes nothing: once the others are gone unwritten, the last one skips the look again.
///
/// An event that was read, or whose id was given, shares nothing and is always looked for.
#[derive(Clone, Default)]
pub(crate) struct FirstUse(Option<Arc<Made>>);

struct Made {
    id: Uuid,
    used: AtomicBool,
}

impl FirstUse {
    /// Of an id that was made just now.
    pub(super) fn of(id: Uuid) -> Self {
        let used = AtomicBool::new(false);
        Self(Some(Arc::new(Made { id, used })))
    }

    /// Whether this is surely the first use of `id`. Says so once.
    #[cfg_attr(not(any(feature = "mongodb", feature = "trace")), allow(dead_code))]
    pub(crate) fn take(&self, id: Uuid) -> bool {
        let Some(made) = &self.0 else { return false };
        // In this order: a copy that is gone by now has set `used` before it went. The fence pairs with the release in
        // the drop of its `Arc`.
        let only_copy = Arc::strong_count(made) == 1;
        fence(Ordering::Acquire);
        let used = made.used.swap(true, Ordering::Relaxed);
        only_copy && !used && made.id == id
    }

    /// For a copy that is written in the place of this one.
    #[cfg(feature = "trace")]
    pub(crate) fn hand_over(&self, id: Uuid) -> Self {
        match self.take(id) {
            true => Self::of(id),
            false => Self::default(),
        }
    }
}

/// Short, because it is printed with every event.
impl fmt::Debug for FirstUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unused = |made: &Arc<Made>| !made.used.load(Ordering::Relaxed);
        f.write_str(match self.0.as_ref().is_some_and(unused) {
            true => "ahead",
            false => "over",
        })
    }
}

/// It is no part of what an event says.
impl PartialEq for FirstUse {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use crate::event::Event;

    fn event() -> Event {
        Event::to("t").event_type("X").aggregate("thing", "1")
    }

    fn is_first_use(event: &Event) -> bool {
        event.first_use.take(event.id)
    }

    #[test]
    fn a_new_event_is_used_for_the_first_time_once() {
        let event = event();
        assert!(is_first_use(&event));
        assert!(!is_first_use(&event));
    }

    #[test]
    fn an_id_that_was_set_may_have_been_used() {
        assert!(!is_first_use(&event().id(Uuid::now_v7())));
        let mut changed = event();
        changed.id = Uuid::now_v7();
        assert!(!is_first_use(&changed));
    }

    #[test]
    fn neither_of_two_copies_is_surely_the_first() {
        let event = event();
        let copy = event.clone();
        assert!(!is_first_use(&copy));
        assert!(!is_first_use(&event));
    }

    #[test]
    fn a_copy_that_was_written_is_remembered_when_it_is_gone() {
        let event = event();
        let copy = event.clone();
        std::thread::spawn(move || is_first_use(&copy)).join().unwrap();
        assert!(!is_first_use(&event));
    }

    #[test]
    fn a_copy_that_was_not_written_changes_nothing() {
        let event = event();
        let copy = event.clone();
        drop(copy);
        assert!(is_first_use(&event));
        let copy = self::event().clone();
        assert!(is_first_use(&copy), "the only one there is");
    }

    #[test]
    fn an_id_that_was_given_may_have_been_used() {
        let given = Event::to("t").id(Uuid::now_v7()).event_type("X");
        assert!(!is_first_use(&given.aggregate("thing", "1")));
    }

    #[test]
    fn what_was_read_may_have_been_used() {
        let text = serde_json::to_string(&event()).unwrap();
        assert!(!is_first_use(&serde_json::from_str(&text).unwrap()));
        let nameless =
            r#"{"topic":"t","event_type":"X","aggregate_type":"thing","aggregate_id":"1","payload":null}"#;
        assert!(!is_first_use(&serde_json::from_str(nameless).unwrap()));
    }
}
