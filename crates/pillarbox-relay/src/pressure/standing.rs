//! How the classes stand, for people.

use std::time::Duration;

use pillarbox::pressure::Pressure;
use serde::Serialize;

use crate::store::admin::seconds;

/// How a class of topics stands: what whoever enqueues would be told now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Standing {
    pub class: String,
    pub producers: Level,
    /// So many wait at most. Above the lowest limit the relay counts; below, what is known without counting stands for every
    /// class.
    pub pending: u64,
    pub soft: Option<u64>,
    pub hard: Option<u64>,
    /// How long the oldest has waited; not known where nothing was counted.
    #[serde(rename = "oldest_age_seconds", serialize_with = "seconds")]
    pub oldest_age: Option<Duration>,
    /// What a producer waits with each event.
    #[serde(rename = "delay_seconds", serialize_with = "seconds")]
    pub delay: Option<Duration>,
    /// When a producer that is refused should try again.
    #[serde(rename = "retry_after_seconds", serialize_with = "seconds")]
    pub retry_after: Option<Duration>,
}

/// What producers feel.
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
