//! An event under construction. Each stage asks for one thing that every event needs, so an incomplete event
//! does not compile.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Event, EventId, FirstUse, RetryOverrides, first_version};

/// An event that has a topic: see [`Event::to`].
#[derive(Debug, Clone)]
#[must_use = "it is not an event until `event_type` and `aggregate` are called"]
pub struct ToTopic {
    topic: String,
    id: Option<EventId>,
}

/// An event that has a topic and a type: see [`Event::to`].
#[derive(Debug, Clone)]
#[must_use = "it is not an event until `aggregate` is called"]
pub struct Typed {
    to: ToTopic,
    event_type: String,
}

impl Event {
    /// Begins an event for this topic. It gets a new id and the payload `null`:
    ///
    /// ```
    /// # use pillarbox::Event;
    /// let event = Event::to("shop.order.placed").event_type("OrderPlaced").aggregate("order", "o-1");
    /// assert_eq!(event.key(), "o-1");
    /// ```
    pub fn to(topic: impl Into<String>) -> ToTopic {
        ToTopic {
            topic: topic.into(),
            id: None,
        }
    }
}

impl ToTopic {
    /// Uses an existing id. The same as [`Event::id`], but no new id is made first.
    pub fn id(mut self, id: impl Into<EventId>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The type of the event: `OrderPlaced`.
    pub fn event_type(self, event_type: impl Into<String>) -> Typed {
        Typed {
            to: self,
            event_type: event_type.into(),
        }
    }
}

impl Typed {
    /// The type and the id of the aggregate, as in `("order", "o-1")`.
    pub fn aggregate(self, aggregate_type: impl Into<String>, aggregate_id: impl Into<String>) -> Event {
        let (id, first_use) = match self.to.id {
            Some(id) => (id, FirstUse::default()),
            None => {
                let id = EventId::new();
                (id.clone(), FirstUse::of(id))
            }
        };
        Event {
            id,
            topic: self.to.topic,
            stream: None,
            event_type: self.event_type,
            schema_version: first_version(),
            aggregate_type: aggregate_type.into(),
            aggregate_id: aggregate_id.into(),
            aggregate_version: None,
            partition_key: None,
            payload: Bytes::from_static(b"null"),
            headers: BTreeMap::new(),
            project_id: None,
            user_id: None,
            available_at: None,
            retry: RetryOverrides::default(),
            first_use,
        }
    }
}
