//! Backpressure: tells producers how much waits.
//!
//! [`Class`]es of topics come from the configuration. A [`Keeper`] writes them down beside the outbox, and how they stand; the
//! producers read it when they enqueue, see [`pillarbox::pressure`]. While little waits nothing is counted.
//! [`decide`] says when to count.

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

/// While events are written, and while none are.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const LOOK_EVERY_IDLE: Duration = Duration::from_secs(1);
/// A count may take this part of the time.
const REST_TIMES: u32 = 10;
/// Counted beyond twice the highest limit: so many of classes without limits don't hide what waits behind them.
const COUNT_MORE: u64 = 200_000;
/// A database that is away is asked again after this.
const AWAY: Duration = Duration::from_secs(2);

/// Topics that share limits. Of several that a topic matches, the first counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    pub name: String,
    /// None: every topic.
    pub topics: Vec<Pattern>,
    /// Without any, its events are never slowed or refused.
    pub limit: Limit,
}

impl Class {
    fn takes(&self, topic: &str) -> bool {
        self.topics.is_empty() || self.topics.iter().any(|pattern| pattern.matches(topic))
    }
}

/// What can be known without counting much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Glance {
    /// So many wait at most. A store that counts stops where it is enough.
    pub waiting: u64,
    /// Where the sequence stands; 0 where there is none.
    pub at: Seq,
    /// Where it stood when the figures were written, and the highest of them.
    pub noted_at: Seq,
    pub noted_pending: u64,
    /// How old they are.
    pub age: Option<Duration>,
}

/// Events that wait, by topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    pub topics: Vec<TopicWaiting>,
    /// Events, at most, behind those that were counted.
    pub not_counted: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicWaiting {
    pub topic: String,
    pub count: u64,
    pub oldest: Option<Timestamp>,
}

/// How the classes stand, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    pub at: Seq,
    /// When measuring began: what was written since may not be in them.
    pub measured: Instant,
    /// Events a second that go out, of all classes.
    pub drained: f64,
    pub classes: Vec<(u64, Option<Timestamp>)>,
}

/// Where producers look. No store writes the figures of its own accord.
#[async_trait]
pub trait Gauge: Send + Sync + 'static {
    /// Writes the classes down and removes all others; none: producers are never slowed or refused. What is there already stays
    /// with its figures; what is new begins with what may wait at most.
    async fn set_classes(&self, classes: &[Class]) -> Result<(), StoreError>;

    /// `enough` waiting events need not be told from more.
    async fn glance(&self, enough: u64) -> Result<Glance, StoreError>;

    /// Counts what is pending, from the oldest on and no further than `limit` events.
    async fn count(&self, at: Seq, limit: u64) -> Result<Waiting, StoreError>;

    async fn note(&self, figures: &Figures) -> Result<(), StoreError>;

    /// Producers rely on figures of this age; `None`: of any.
    fn reliable_for(&self) -> Option<Duration> {
        None
    }
}

/// Keeps the figures, for as long as the relay runs.
pub struct Keeper {
    pub gauge: Arc<dyn Gauge>,
    pub classes: Vec<Class>,
}

/// What was measured last, to tell how fast the backlog shrinks.
struct Before {
    when: Instant,
    at: Seq,
    waiting: u64,
    drained: f64,
}

impl Keeper {
    /// Goes on until it is stopped; with no classes, until the old ones are removed.
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
                    // Where producers rely on young figures, they are told in time however long it takes.
                    let longest = self.gauge.reliable_for().map_or(rest, |reliable| reliable / 2);
                    wait.max(rest.min(longest))
                }
                Err(error) => {
                    tracing::debug!(why = error.chain(), "producers could not be told what waits");
                    AWAY
                }
            };
            // Several relays do the same: not in step.
            let wait = wait.mul_f64(rand::rng().random_range(1.0..1.3));
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Measures if it is time. How long until the next look; `None` when there is nothing to keep.
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

    /// By class, from by topic. What was not counted may be of any.
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

    /// Says when producers begin to feel it, and when it is over.
    fn tell(&self, figures: &Figures, levels: &mut [Level]) {
        for ((class, level), (pending, _)) in self.classes.iter().zip(levels).zip(&figures.classes) {
            let now = Level::of(&class.limit, *pending);
            if now == *level {
                continue;
            }
            let (name, pending) = (&*class.name, *pending);
            match now {
                Level::Free => tracing::info!(class = name, pending, "producers are not slowed any more"),
                Level::Slowed => tracing::warn!(class = name, pending, "much waits: producers are slowed"),
                Level::Refused => {
                    tracing::warn!(class = name, pending, "too much waits: producers are refused")
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

/// Events a second that went out between two looks, smoothed.
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
