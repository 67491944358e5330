//! Whether an event's id may be in an outbox already.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering, fence},
    },
};

use super::EventId;

/// An id that `Event::to` made can't be in an outbox before its event is first written, so no lookup is
/// needed.
///
/// All copies of an event share what is known about its id. A copy may skip the lookup if
/// - the event still has the id that was made with it,
/// - no other copy exists (it could be written at the same time and committed first), and
/// - no copy was written before: `used` records that, and it outlives the copy that was written.
///
/// While there are several copies, any of them may be written first, or all at once, so each one needs the
/// lookup. Copying alone changes nothing: once the other copies are dropped unwritten, the last one skips the
/// lookup again.
///
/// An event that was deserialised, or whose id was given, shares nothing and always needs the lookup.
#[derive(Clone, Default)]
pub(crate) struct FirstUse(Option<Arc<Made>>);

struct Made {
    id: EventId,
    used: AtomicBool,
}

impl FirstUse {
    /// For an id that was made just now.
    pub(super) fn of(id: EventId) -> Self {
        let used = AtomicBool::new(false);
        Self(Some(Arc::new(Made { id, used })))
    }

    /// Whether this is certainly the first use of `id`. Returns true at most once.
    #[cfg_attr(not(any(feature = "mongodb", feature = "trace")), allow(dead_code))]
    pub(crate) fn take(&self, id: &EventId) -> bool {
        let Some(made) = &self.0 else { return false };
        // The order matters: a copy that is gone by now set `used` before it was dropped. The fence pairs
        // with the release in the drop of its `Arc`.
        let only_copy = Arc::strong_count(made) == 1;
        fence(Ordering::Acquire);
        let used = made.used.swap(true, Ordering::Relaxed);
        only_copy && !used && made.id == *id
    }

    /// For a copy that replaces this one.
    #[cfg(feature = "trace")]
    pub(crate) fn hand_over(&self, id: &EventId) -> Self {
        match self.take(id) {
            true => Self::of(id.clone()),
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

/// Always equal: it is not part of an event's content.
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
        event.first_use.take(&event.id)
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
        changed.id = Uuid::now_v7().into();
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
    fn a_deserialised_event_is_not_a_first_use() {
        let text = serde_json::to_string(&event()).unwrap();
        assert!(!is_first_use(&serde_json::from_str(&text).unwrap()));
        let nameless =
            r#"{"topic":"t","event_type":"X","aggregate_type":"thing","aggregate_id":"1","payload":null}"#;
        assert!(!is_first_use(&serde_json::from_str(nameless).unwrap()));
    }
}
