//! Whether an event's id was never used.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use uuid::Uuid;

/// An id that `Event::to` made is in no outbox before its event is first written, so who would have to look for it first
/// need not. What makes a second use possible spends this: the first one, a clone, another id.
#[doc(hidden)]
#[derive(Default)]
pub struct FirstUse {
    id: Uuid,
    ahead: AtomicBool,
}

impl FirstUse {
    pub(super) fn of(id: Uuid) -> Self {
        Self {
            id,
            ahead: AtomicBool::new(true),
        }
    }

    /// Whether this is the first use of `id`. Says so once.
    #[cfg_attr(not(any(feature = "mongodb", feature = "trace")), allow(dead_code))]
    pub(crate) fn take(&self, id: Uuid) -> bool {
        self.ahead.swap(false, Relaxed) && self.id == id
    }

    /// To a copy that is used in the place of this one.
    #[cfg(feature = "trace")]
    pub(crate) fn hand_over(&self, id: Uuid) -> Self {
        Self {
            id,
            ahead: AtomicBool::new(self.take(id)),
        }
    }
}

/// Short, as it stands in every event's.
impl fmt::Debug for FirstUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ahead = self.ahead.load(Relaxed);
        f.write_str(if ahead { "ahead" } else { "over" })
    }
}

/// Of an event that is there twice either may be written first.
impl Clone for FirstUse {
    fn clone(&self) -> Self {
        self.ahead.store(false, Relaxed);
        Self::default()
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
    fn neither_of_two_clones_is_surely_the_first() {
        let event = event();
        let clone = event.clone();
        assert!(!is_first_use(&clone));
        assert!(!is_first_use(&event));
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
