//! Backpressure: tells producers how many events are pending.
//!
//! [`Class`]es of topics come from the configuration. A [`Keeper`] writes them, with their figures, beside the
//! outbox. Producers read the figures when they enqueue, see [`pillarbox::pressure`]. While few events are pending,
//! nothing is counted. [`decide`] decides when to count.

mod decide;
mod standing;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::pressure::Limit;
use rand::RngExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::{
    decide::{Step, decide},
    standing::{Level, Standing},
};
use crate::{event::Seq, route::Pattern, store::StoreError};

/// The pause between two checks while events are written, and while none are.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const LOOK_EVERY_IDLE: Duration = Duration::from_secs(1);
/// After a count, the pause is this many times as long as the count took.
const REST_TIMES: u32 = 10;
/// Count this many more than twice the highest limit, so that events of classes without limits don't hide those
/// after them.
const COUNT_MORE: u64 = 200_000;
/// The pause before a database that is away is asked again.
const AWAY: Duration = Duration::from_secs(2);

/// Topics that share limits. A topic belongs to the first class that matches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    pub name: String,
    /// Empty: every topic.
    pub topics: Vec<Pattern>,
    /// Without limits, its events are never slowed or refused.
    pub limit: Limit,
}

impl Class {
    fn takes(&self, topic: &str) -> bool {
        self.topics.is_empty() || self.topics.iter().any(|pattern| pattern.matches(topic))
    }
}

/// What is known without a full count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Glance {
    /// An upper bound of the pending events. A store that counts stops at `enough`.
    pub waiting: u64,
    /// The current value of the sequence; 0 if there is none.
    pub at: Seq,
    /// The value of the sequence when the figures were written, and the highest of the figures.
    pub noted_at: Seq,
    pub noted_pending: u64,
    /// The age of the figures.
    pub age: Option<Duration>,
}

/// Pending events by topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    pub topics: Vec<TopicWaiting>,
    /// An upper bound of the events after those that were counted.
    pub not_counted: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicWaiting {
    pub topic: String,
    pub count: u64,
    pub oldest: Option<Timestamp>,
}

/// The figures of the classes, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    pub at: Seq,
    /// When the measurement began. Events written since then may be missing in the figures.
    pub measured: Instant,
    /// Delivered events for each second, of all classes.
    pub drained: f64,
    pub classes: Vec<(u64, Option<Timestamp>)>,
}

/// Stores the figures for producers. Only a [`Keeper`] updates them, never the store itself.
#[async_trait]
pub trait Gauge: Send + Sync + 'static {
    /// Writes the classes and removes all others. With none, producers are never slowed or refused. Existing
    /// classes keep their figures. A new class starts with the upper bound of the pending events.
    async fn set_classes(&self, classes: &[Class]) -> Result<(), StoreError>;

    /// The count may stop at `enough` pending events.
    async fn glance(&self, enough: u64) -> Result<Glance, StoreError>;

    /// Counts the pending events, from the oldest, at most `limit` of them.
    async fn count(&self, at: Seq, limit: u64) -> Result<Waiting, StoreError>;

    async fn note(&self, figures: &Figures) -> Result<(), StoreError>;

    /// Producers rely on figures up to this age; `None`: of any age.
    fn reliable_for(&self) -> Option<Duration> {
        None
    }
}

/// Updates the figures while the relay runs.
pub struct Keeper {
    pub gauge: Arc<dyn Gauge>,
    pub classes: Vec<Class>,
}

/// The last measurement, to compute how fast the backlog shrinks.
struct Before {
    when: Instant,
    at: Seq,
    waiting: u64,
    drained: f64,
}

impl Keeper {
    /// Runs until it is stopped. With no classes, it ends when the old ones are removed.
    pub async fn keep(self, stop: CancellationToken) {
        let mut set = false;
        let mut before = None;
        let mut levels = vec![Level::Free; self.classes.len()];
        loop {
            let started = Instant::now();
            let wait = match self.turn(&mut set, &mut before, &mut levels).await {
                Ok(None) => return,
                Ok(Some(wait)) => {
                    let rest = started.elapsed() * REST_TIMES;
                    // If producers rely only on fresh figures, write them in time, however long a count takes.
                    let longest = self.gauge.reliable_for().map_or(rest, |reliable| reliable / 2);
                    wait.max(rest.min(longest))
                }
                Err(error) => {
                    tracing::debug!(why = error.chain(), "could not write the backpressure figures");
                    AWAY
                }
            };
            // Several relays do the same: keep them out of step.
            let wait = wait.mul_f64(rand::rng().random_range(1.0..1.3));
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Measures if it is time. Returns the pause before the next check; `None` if there is nothing to keep.
    async fn turn(
        &self,
        set: &mut bool,
        before: &mut Option<Before>,
        levels: &mut [Level],
    ) -> Result<Option<Duration>, StoreError> {
        if !*set {
            self.gauge.set_classes(&self.classes).await?;
            *set = true;
        }
        let limits = self.classes.iter().map(|class| class.limit);
        let Some(lowest) = limits.clone().filter_map(|l| l.soft.or(l.hard)).min() else {
            return Ok(None);
        };
        let highest = limits.filter_map(|l| l.hard.max(l.soft)).max().unwrap_or(lowest);
        let measured = Instant::now();
        let glance = self.gauge.glance(lowest.saturating_add(1)).await?;
        let moved = before
            .as_ref()
            .is_none_or(|before: &Before| before.at != glance.at);
        let figures = match decide(&glance, lowest, LOOK_EVERY, self.gauge.reliable_for()) {
            Step::Nothing => None,
            Step::NoteBound => Some(vec![(glance.waiting, None); self.classes.len()]),
            Step::Count => {
                let most = highest.saturating_mul(2).saturating_add(COUNT_MORE);
                Some(self.sum(self.gauge.count(glance.at, most).await?))
            }
        };
        if let Some(classes) = figures {
            let waiting = classes.iter().map(|(pending, _)| *pending).max().unwrap_or(0);
            let drained = drained(before.as_ref(), glance.at, waiting);
            let figures = Figures {
                at: glance.at,
                measured,
                drained,
                classes,
            };
            self.gauge.note(&figures).await?;
            self.tell(&figures, levels);
            *before = Some(Before {
                when: Instant::now(),
                at: glance.at,
                waiting,
                drained,
            });
        }
        let busy = moved || glance.waiting >= lowest;
        Ok(Some(if busy { LOOK_EVERY } else { LOOK_EVERY_IDLE }))
    }

    /// Figures by class, from figures by topic. Events that were not counted may belong to any class.
    fn sum(&self, waiting: Waiting) -> Vec<(u64, Option<Timestamp>)> {
        let mut classes: Vec<(u64, Option<Timestamp>)> =
            vec![(waiting.not_counted, None); self.classes.len()];
        for topic in waiting.topics {
            let Some(place) = self.classes.iter().position(|class| class.takes(&topic.topic)) else {
                continue;
            };
            let (pending, oldest) = &mut classes[place];
            *pending = pending.saturating_add(topic.count);
            *oldest = match (*oldest, topic.oldest) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        classes
    }

    /// Logs when producers are slowed or refused, and when that is over.
    fn tell(&self, figures: &Figures, levels: &mut [Level]) {
        for ((class, level), (pending, _)) in self.classes.iter().zip(levels).zip(&figures.classes) {
            let now = Level::of(&class.limit, *pending);
            if now == *level {
                continue;
            }
            let (name, pending) = (&*class.name, *pending);
            match now {
                Level::Free => tracing::info!(class = name, pending, "producers are no longer slowed down"),
                Level::Slowed => tracing::warn!(
                    class = name,
                    pending,
                    "many events are pending: producers are slowed down"
                ),
                Level::Refused => {
                    tracing::warn!(
                        class = name,
                        pending,
                        "too many events are pending: producers are refused"
                    )
                }
            }
            *level = now;
        }
    }
}

impl Level {
    fn of(limit: &Limit, pending: u64) -> Self {
        match limit {
            Limit { hard: Some(hard), .. } if pending >= *hard => Self::Refused,
            Limit { soft: Some(soft), .. } if pending > *soft => Self::Slowed,
            _ => Self::Free,
        }
    }
}

/// Delivered events for each second between two checks, smoothed.
fn drained(before: Option<&Before>, at: Seq, waiting: u64) -> f64 {
    let Some(before) = before else {
        return 0.0;
    };
    let seconds = before.when.elapsed().as_secs_f64().max(0.001);
    let added = u64::try_from(at.saturating_sub(before.at)).unwrap_or(0);
    let gone = before.waiting.saturating_add(added).saturating_sub(waiting);
    (before.drained + gone as f64 / seconds) / 2.0
}

#[cfg(test)]
mod tests;
