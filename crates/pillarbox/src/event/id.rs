//! The id of an event.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod sqlx;

use std::{convert::Infallible, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Visitor};
use uuid::Uuid;

/// The id of an event: the idempotency key everywhere. Its producer makes it; any text of 1 to 255 bytes is an id.
///
/// A new one is a UUID of version 7. Two ids are equal if their texts are: `A1` and `a1` are two events.
///
/// ```
/// # use pillarbox::{Event, EventId};
/// let event = Event::to("shop.order.placed").id("payout-2026-11-0042").event_type("Paid").aggregate("payout", "42");
/// assert_eq!(event.id, EventId::from("payout-2026-11-0042"));
/// ```
///
/// Making one checks nothing. As with the other texts of an event, `enqueue` refuses an id that is empty, too long
/// or has a control character.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Form);

/// A text that is a UUID in its usual spelling always has the first form. So equal texts have equal forms, and the
/// usual id needs no allocation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Form {
    Uuid(Uuid),
    Text(Arc<str>),
}

impl EventId {
    /// A new id: a UUID of version 7.
    #[allow(clippy::new_without_default, reason = "each one is another")]
    pub fn new() -> Self {
        Self(Form::Uuid(Uuid::now_v7()))
    }

    /// The id as a UUID, if it is one in its usual spelling (lower case, with hyphens).
    pub fn as_uuid(&self) -> Option<Uuid> {
        match self.0 {
            Form::Uuid(uuid) => Some(uuid),
            Form::Text(_) => None,
        }
    }

    /// Its size as text, in bytes.
    pub fn text_bytes(&self) -> usize {
        match &self.0 {
            Form::Uuid(_) => uuid::fmt::Hyphenated::LENGTH,
            Form::Text(text) => text.len(),
        }
    }

    /// Whether it is the UUID that is all zeros.
    pub fn is_nil(&self) -> bool {
        self.as_uuid().is_some_and(|uuid| uuid.is_nil())
    }

    /// Calls a function with its text, without an allocation.
    pub fn with_text<T>(&self, f: impl FnOnce(&str) -> T) -> T {
        match &self.0 {
            Form::Uuid(uuid) => f(uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer())),
            Form::Text(text) => f(text),
        }
    }
}

/// The UUID of a text in the usual spelling.
fn usual(text: &str) -> Option<Uuid> {
    let uuid = Uuid::try_parse(text).ok()?;
    (uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text).then_some(uuid)
}

impl From<Uuid> for EventId {
    fn from(uuid: Uuid) -> Self {
        Self(Form::Uuid(uuid))
    }
}

impl From<&str> for EventId {
    fn from(text: &str) -> Self {
        Self(usual(text).map_or_else(|| Form::Text(text.into()), Form::Uuid))
    }
}

impl From<String> for EventId {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for EventId {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<&EventId> for EventId {
    fn from(id: &EventId) -> Self {
        id.clone()
    }
}

impl FromStr for EventId {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.into())
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.pad(text))
    }
}

/// As its text.
impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| fmt::Debug::fmt(text, f))
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.with_text(|text| serializer.serialize_str(text))
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = EventId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id as a text")
            }

            fn visit_str<E>(self, text: &str) -> Result<EventId, E> {
                Ok(text.into())
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "0197a1b2-11aa-7000-8000-0123456789ab";

    #[test]
    fn a_uuid_and_its_text_are_one_id() {
        let uuid: Uuid = UUID.parse().unwrap();
        assert_eq!(EventId::from(UUID), EventId::from(uuid));
        assert_eq!(EventId::from(UUID).as_uuid(), Some(uuid));
        assert_eq!(format!("{:>40}", EventId::from(uuid)), format!("{UUID:>40}"));
    }

    #[test]
    fn another_spelling_of_a_uuid_is_another_id() {
        let simple = UUID.replace('-', "");
        for other in [
            UUID.to_uppercase(),
            simple.clone(),
            format!("{{{UUID}}}"),
            format!("urn:uuid:{UUID}"),
        ] {
            let id = EventId::from(other.as_str());
            assert_eq!((id.to_string(), id.as_uuid()), (other, None));
            assert_ne!(id, EventId::from(UUID));
        }
    }

    #[test]
    fn in_json_it_is_a_text() {
        for text in [UUID, "payout-42", "заказ 7", ""] {
            let id = EventId::from(text);
            let json = serde_json::to_string(&id).unwrap();
            assert_eq!(json, serde_json::to_string(text).unwrap());
            assert_eq!(serde_json::from_str::<EventId>(&json).unwrap(), id);
        }
        assert!(serde_json::from_str::<EventId>("7").is_err());
    }

    proptest! {
        #[test]
        fn ids_are_equal_if_their_texts_are(one in "\\PC{0,40}", two in "\\PC{0,40}") {
            let (a, b) = (EventId::from(one.as_str()), EventId::from(two.as_str()));
            prop_assert_eq!(&a.to_string(), &one);
            prop_assert_eq!(a.text_bytes(), one.len());
            prop_assert_eq!(a == b, one == two);
        }
    }
}
