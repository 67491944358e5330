//! The checks of an event. They run before any SQL, so a refusal leaves the application's transaction usable.

mod depth;

use std::time::Duration;

use jiff::Timestamp;
use serde::de::IgnoredAny;
use thiserror::Error;

use crate::event::{Event, RetryOverrides};

/// How large an event may be. Everything from outside has a limit.
///
/// `Limits::default().payload_bytes_max(10_000)` changes one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The payload's size in bytes; 1 MiB by default.
    pub payload_bytes_max: usize,
    /// The size in bytes of each of these: topic, stream, key, types and ids.
    pub name_bytes_max: usize,
    /// The number of headers.
    pub headers_max: usize,
    /// The size of all header names and values together, in bytes.
    pub headers_bytes_max: usize,
    /// How far in the future `available_at` may be.
    pub delay_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes_max: 1024 * 1024,
            name_bytes_max: 255,
            headers_max: 64,
            headers_bytes_max: 16 * 1024,
            delay_max: Duration::from_secs(365 * 24 * 3600),
        }
    }
}

impl Limits {
    /// Sets the limit for the payload's size in bytes.
    pub fn payload_bytes_max(mut self, bytes: usize) -> Self {
        self.payload_bytes_max = bytes;
        self
    }
}

/// A part of an event, for error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// The event's id.
    Id,
    /// The topic.
    Topic,
    /// The stream.
    Stream,
    /// The event's type.
    EventType,
    /// The aggregate's type.
    AggregateType,
    /// The aggregate's id.
    AggregateId,
    /// The partition key.
    PartitionKey,
    /// The project's id.
    ProjectId,
    /// The user's id.
    UserId,
    /// The name of a header.
    HeaderName,
    /// The value of a header.
    HeaderValue,
}

/// Why an event was refused. Nothing was written.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The id is all zeros.
    #[error("the id is all zeros: give each event its own id, or none")]
    NilId,
    /// A required field is empty.
    #[error("{field} is empty")]
    Empty {
        /// Which field.
        field: Field,
    },
    /// A field is too long.
    #[error("{field} has {bytes} bytes; {max} are allowed")]
    TooLong {
        /// Which field.
        field: Field,
        /// How many bytes it has.
        bytes: usize,
        /// How many are allowed.
        max: usize,
    },
    /// A field has a control character.
    #[error("{field} contains {character:?}, which can't be stored or sent")]
    Character {
        /// Which field.
        field: Field,
        /// The first such character.
        character: char,
    },
    /// The payload is too large.
    #[error(
        "the payload has {bytes} bytes; {max} are allowed. Store the large part elsewhere and send a reference, or raise the limit"
    )]
    PayloadTooLarge {
        /// How many bytes it has.
        bytes: usize,
        /// How many are allowed.
        max: usize,
    },
    /// The payload is not JSON.
    #[error("the payload is not JSON: {problem}")]
    PayloadNotJson {
        /// What is wrong, without the payload.
        problem: String,
    },
    /// The payload is nested too deeply.
    #[error("the payload is nested deeper than {max} levels")]
    PayloadTooDeep {
        /// How many are allowed.
        max: usize,
    },
    /// The aggregate's version is negative.
    #[error("aggregate_version is {version}; it must not be negative")]
    AggregateVersion {
        /// The version given.
        version: i64,
    },
    /// The schema's version is below 1.
    #[error("schema_version is {version}; it must be 1 or more")]
    SchemaVersion {
        /// The version given.
        version: i32,
    },
    /// The event is due too far in the future.
    #[error("the event is due in {days} days; at most {max_days} are allowed")]
    Delay {
        /// How far, in days.
        days: i64,
        /// How far is allowed, in days.
        max_days: i64,
    },
    /// There are too many headers.
    #[error("the event has {count} headers; {max} are allowed")]
    TooManyHeaders {
        /// How many there are.
        count: usize,
        /// How many are allowed.
        max: usize,
    },
    /// The headers are too large in total.
    #[error("the headers have {bytes} bytes; {max} are allowed")]
    HeadersTooLarge {
        /// How many bytes they have.
        bytes: usize,
        /// How many are allowed.
        max: usize,
    },
    /// A setting of `RetryOverrides` is out of range.
    #[error("{setting} is {value}; {allowed}")]
    Retry {
        /// The name of the setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
}

impl Limits {
    /// Checks everything that `enqueue` refuses.
    pub fn check_new(&self, event: &Event, now: Timestamp) -> Result<(), CheckError> {
        if event.id.is_nil() {
            return Err(CheckError::NilId);
        }
        self.check(event, now)
    }

    /// Checks a row before the relay delivers it. Another program may have written the row.
    pub fn check(&self, event: &Event, now: Timestamp) -> Result<(), CheckError> {
        if event.id.as_uuid().is_none() {
            event.id.with_text(|id| self.required(Field::Id, id))?;
        }
        self.required(Field::Topic, &event.topic)?;
        if let Some(character) = event.topic.chars().find(|c| c.is_whitespace()) {
            return Err(CheckError::Character {
                field: Field::Topic,
                character,
            });
        }
        self.required(Field::EventType, &event.event_type)?;
        self.required(Field::AggregateType, &event.aggregate_type)?;
        self.required(Field::AggregateId, &event.aggregate_id)?;
        self.optional(Field::PartitionKey, event.partition_key.as_deref())?;
        self.optional(Field::Stream, event.stream.as_deref())?;
        self.optional(Field::ProjectId, event.project_id.as_deref())?;
        self.optional(Field::UserId, event.user_id.as_deref())?;
        if let Some(version) = event.aggregate_version.filter(|&v| v < 0) {
            return Err(CheckError::AggregateVersion { version });
        }
        if event.schema_version < 1 {
            return Err(CheckError::SchemaVersion {
                version: event.schema_version,
            });
        }
        self.delay(event, now)?;
        check_retry(&event.retry)?;
        self.headers(event)?;
        self.payload(&event.payload)
    }

    /// Checks the payload alone: its size, and that it is JSON. The parser builds no values.
    pub fn payload(&self, payload: &[u8]) -> Result<(), CheckError> {
        if payload.len() > self.payload_bytes_max {
            return Err(CheckError::PayloadTooLarge {
                bytes: payload.len(),
                max: self.payload_bytes_max,
            });
        }
        // serde_json skips over the bytes of a string without checking that they are UTF-8. PostgreSQL would
        // refuse them and abort the application's transaction.
        std::str::from_utf8(payload)
            .map_err(|e| e.to_string())
            .and_then(|text| serde_json::from_str::<IgnoredAny>(text).map_err(|e| e.to_string()))
            .map_err(|problem| CheckError::PayloadNotJson { problem })?;
        // PostgreSQL's parser is recursive. At some thousand levels it hits its stack limit and aborts the
        // application's transaction.
        if depth::is_over(payload, depth::MAX) {
            return Err(CheckError::PayloadTooDeep { max: depth::MAX });
        }
        Ok(())
    }

    fn required(&self, field: Field, text: &str) -> Result<(), CheckError> {
        if text.is_empty() {
            return Err(CheckError::Empty { field });
        }
        if text.len() > self.name_bytes_max {
            return Err(CheckError::TooLong {
                field,
                bytes: text.len(),
                max: self.name_bytes_max,
            });
        }
        no_control_characters(field, text)
    }

    fn optional(&self, field: Field, text: Option<&str>) -> Result<(), CheckError> {
        text.map_or(Ok(()), |text| self.required(field, text))
    }

    fn delay(&self, event: &Event, now: Timestamp) -> Result<(), CheckError> {
        let Some(at) = event.available_at else {
            return Ok(());
        };
        let seconds = at.duration_since(now).as_secs();
        let max = i64::try_from(self.delay_max.as_secs()).unwrap_or(i64::MAX);
        if seconds > max {
            return Err(CheckError::Delay {
                days: seconds / 86_400,
                max_days: max / 86_400,
            });
        }
        Ok(())
    }

    fn headers(&self, event: &Event) -> Result<(), CheckError> {
        if event.headers.len() > self.headers_max {
            return Err(CheckError::TooManyHeaders {
                count: event.headers.len(),
                max: self.headers_max,
            });
        }
        let mut bytes = 0;
        for (name, value) in &event.headers {
            self.required(Field::HeaderName, name)?;
            if let Some(character) = name.chars().find(|&c| !c.is_ascii_graphic() || c == ':') {
                return Err(CheckError::Character {
                    field: Field::HeaderName,
                    character,
                });
            }
            no_control_characters(Field::HeaderValue, value)?;
            bytes += name.len() + value.len();
        }
        if bytes > self.headers_bytes_max {
            return Err(CheckError::HeadersTooLarge {
                bytes,
                max: self.headers_bytes_max,
            });
        }
        Ok(())
    }
}

fn no_control_characters(field: Field, text: &str) -> Result<(), CheckError> {
    match text.chars().find(|c| c.is_control()) {
        Some(character) => Err(CheckError::Character { field, character }),
        None => Ok(()),
    }
}

fn check_retry(retry: &RetryOverrides) -> Result<(), CheckError> {
    let refuse = |setting, value: String, allowed| {
        Err(CheckError::Retry {
            setting,
            value,
            allowed,
        })
    };
    const DELAY: &str = "1 to 86400000 are allowed";
    if let Some(n) = retry.max_attempts.filter(|n| !(1..=1000).contains(n)) {
        return refuse("max_attempts", n.to_string(), "1 to 1000 are allowed");
    }
    if let Some(n) = retry.base_delay_ms.filter(|n| !(1..=86_400_000).contains(n)) {
        return refuse("base_delay_ms", n.to_string(), DELAY);
    }
    if let Some(n) = retry.max_delay_ms.filter(|n| !(1..=86_400_000).contains(n)) {
        return refuse("max_delay_ms", n.to_string(), DELAY);
    }
    if let (Some(base), Some(max)) = (retry.base_delay_ms, retry.max_delay_ms)
        && max < base
    {
        return refuse(
            "max_delay_ms",
            max.to_string(),
            "it must not be below base_delay_ms",
        );
    }
    if let Some(n) = retry.backoff_multiplier.filter(|n| !(1.0..=10.0).contains(n)) {
        return refuse("backoff_multiplier", n.to_string(), "1.0 to 10.0 are allowed");
    }
    Ok(())
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Id => "id",
            Self::Topic => "topic",
            Self::Stream => "stream",
            Self::EventType => "event_type",
            Self::AggregateType => "aggregate_type",
            Self::AggregateId => "aggregate_id",
            Self::PartitionKey => "partition_key",
            Self::ProjectId => "project_id",
            Self::UserId => "user_id",
            Self::HeaderName => "a header's name",
            Self::HeaderValue => "a header's value",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn good() -> Event {
        Event::to("shop.order.placed")
            .event_type("OrderPlaced")
            .aggregate("order", "o-1")
            .payload("{}")
    }

    fn refusal(event: Event) -> CheckError {
        Limits::default()
            .check(&event, Timestamp::UNIX_EPOCH)
            .unwrap_err()
    }

    #[test]
    fn each_fault_has_its_own_error() {
        let long = "x".repeat(256);
        let mut event = good();
        event.topic.clear();
        assert_eq!(refusal(event), CheckError::Empty { field: Field::Topic });
        let mut event = good();
        event.event_type = long.clone();
        assert_eq!(
            refusal(event),
            CheckError::TooLong {
                field: Field::EventType,
                bytes: 256,
                max: 255
            }
        );
        assert_eq!(
            refusal(good().partition_key("")),
            CheckError::Empty {
                field: Field::PartitionKey
            }
        );
        assert_eq!(
            refusal(good().partition_key(long)),
            CheckError::TooLong {
                field: Field::PartitionKey,
                bytes: 256,
                max: 255
            }
        );
        assert_eq!(
            refusal(good().partition_key("a\0b")),
            CheckError::Character {
                field: Field::PartitionKey,
                character: '\0'
            }
        );
        assert!(matches!(
            refusal(good().payload("{")),
            CheckError::PayloadNotJson { .. }
        ));
        assert!(matches!(
            refusal(good().payload(&b"\"\xff\""[..])),
            CheckError::PayloadNotJson { .. }
        ));
        assert_eq!(
            refusal(good().payload(format!("\"{}\"", "x".repeat(1024 * 1024)))),
            CheckError::PayloadTooLarge {
                bytes: 1024 * 1024 + 2,
                max: 1024 * 1024
            }
        );
        assert_eq!(
            refusal(good().aggregate_version(-1)),
            CheckError::AggregateVersion { version: -1 }
        );
        assert_eq!(
            refusal(good().schema_version(0)),
            CheckError::SchemaVersion { version: 0 }
        );
        let at = Timestamp::UNIX_EPOCH + Duration::from_secs(366 * 86_400);
        assert_eq!(
            refusal(good().available_at(at)),
            CheckError::Delay {
                days: 366,
                max_days: 365
            }
        );
        let retry = RetryOverrides::default().backoff_multiplier(f64::NAN);
        assert!(matches!(
            refusal(good().retry(retry)),
            CheckError::Retry {
                setting: "backoff_multiplier",
                ..
            }
        ));
        assert!(matches!(
            refusal(good().header("x", "a\r\nb")),
            CheckError::Character { .. }
        ));
        assert_eq!(Limits::default().check(&good(), Timestamp::UNIX_EPOCH), Ok(()));
    }

    proptest! {
        #[test]
        fn no_input_makes_the_check_panic(topic in ".*", key in ".*", payload in proptest::collection::vec(any::<u8>(), 0..64), version in any::<i64>()) {
            let event = good().topic(topic).partition_key(key).payload(payload).aggregate_version(version);
            let _ = Limits::default().check(&event, Timestamp::UNIX_EPOCH);
        }
    }
}
