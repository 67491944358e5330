//! The state of the classes, for people.

use std::time::Duration;

use pillarbox::pressure::Pressure;
use serde::Serialize;

use crate::store::admin::seconds;

/// The state of a class of topics: what a producer that enqueues now would be told.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Standing {
    pub class: String,
    pub producers: Level,
    /// An upper bound of the pending events. Above the lowest limit the relay counts. Below it, the bound known
    /// without counting is used for every class.
    pub pending: u64,
    pub soft: Option<u64>,
    pub hard: Option<u64>,
    /// The age of the oldest event; unknown if nothing was counted.
    #[serde(rename = "oldest_age_seconds", serialize_with = "seconds")]
    pub oldest_age: Option<Duration>,
    /// How long a producer waits with each event.
    #[serde(rename = "delay_seconds", serialize_with = "seconds")]
    pub delay: Option<Duration>,
    /// When a refused producer should try again.
    #[serde(rename = "retry_after_seconds", serialize_with = "seconds")]
    pub retry_after: Option<Duration>,
}

/// The effect on producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Free,
    Slowed,
    Refused,
}

impl From<Pressure> for Standing {
    fn from(pressure: Pressure) -> Self {
        let producers = match pressure.refused {
            true => Level::Refused,
            false if !pressure.delay.is_zero() => Level::Slowed,
            false => Level::Free,
        };
        Self {
            class: pressure.class,
            producers,
            pending: pressure.pending,
            soft: pressure.soft,
            hard: pressure.hard,
            oldest_age: pressure.oldest,
            delay: (producers == Level::Slowed).then_some(pressure.delay),
            retry_after: (producers == Level::Refused).then_some(pressure.retry_after),
        }
    }
}
