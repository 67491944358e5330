//! Whether there is room. MongoDB has no counter that a producer could read for the price of a look, so the relay's figures
//! count, with what this process has written since; where they are old, because no relay runs or it is stalled, the process
//! counts what waits for itself, at most once a second.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use mongodb::bson::{Bson, DateTime, Document, doc};

use super::Place;
use crate::{
    enqueue::EnqueueError,
    pressure::{Limit, Pressure, matches},
};

/// Figures that are older are not relied on.
const FRESH: Duration = Duration::from_secs(3);
/// A count of one's own is good for so long.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// The classes of topics in their order; none where nothing is limited.
pub(super) struct Classes(Vec<Class>);

struct Class {
    name: String,
    /// None: all topics.
    patterns: Vec<String>,
    limit: Limit,
    pending: u64,
    oldest: Option<Duration>,
    drained: f64,
    measured_at: DateTime,
    age: Duration,
}

/// What this process knows of an outbox, by its namespace.
static KNOWN: Mutex<Option<HashMap<String, Known>>> = Mutex::new(None);

#[derive(Clone, Copy)]
struct Known {
    /// The figures that `written` counts from; `before` was written between those before and them, and may not be in them.
    since: DateTime,
    written: u64,
    before: u64,
    /// The latest count of one's own.
    counted: Option<(Instant, u64)>,
}

impl Classes {
    pub(super) fn read(found: &Document) -> Self {
        let classes = found.get_array("pressure").map(Vec::as_slice).unwrap_or_default();
        Self(
            classes
                .iter()
                .filter_map(|class| Class::read(class.as_document()?))
                .collect(),
        )
    }

    /// Waits where much of a topic's class waits, and refuses where too much does.
    pub(super) async fn make_room<'a>(
        &self,
        at: &Place<'_>,
        topics: impl Iterator<Item = &'a str>,
    ) -> Result<(), EnqueueError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut topics: Vec<&str> = topics.collect();
        topics.sort_unstable();
        topics.dedup();
        let mut delay = Duration::ZERO;
        for topic in topics {
            let Some(pressure) = self.of(at, topic).await? else {
                continue;
            };
            if let Some(busy) = EnqueueError::busy(&pressure) {
                return Err(busy);
            }
            delay = delay.max(pressure.delay);
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Ok(())
    }

    /// How the class of a topic stands.
    pub(super) async fn of(&self, at: &Place<'_>, topic: &str) -> Result<Option<Pressure>, EnqueueError> {
        let takes = |class: &&Class| {
            class.patterns.is_empty() || class.patterns.iter().any(|pattern| matches(pattern, topic))
        };
        let Some(class) = self.0.iter().find(takes) else {
            return Ok(None);
        };
        let known = known(at, class.measured_at, |_| ());
        let limited = class.limit.soft.is_some() || class.limit.hard.is_some();
        if class.age < FRESH || !limited {
            let pending = class
                .pending
                .saturating_add(known.written)
                .saturating_add(known.before);
            let (oldest, drained) = (class.oldest, Some(class.drained));
            return Ok(Some(class.limit.judge(&class.name, pending, oldest, drained)));
        }
        let pending = match known.counted.filter(|(when, _)| when.elapsed() < COUNT_EVERY) {
            Some((_, pending)) => pending.saturating_add(known.written),
            None => self.count(at, class).await?,
        };
        Ok(Some(class.limit.judge(&class.name, pending, class.oldest, None)))
    }

    /// All that waits, whatever its class, but no further than to the highest limit. Outside of the transaction, whose snapshot
    /// may be old. The index on (status, created_at) has everything that is asked for.
    async fn count(&self, at: &Place<'_>, class: &Class) -> Result<u64, EnqueueError> {
        let highest = self
            .0
            .iter()
            .filter_map(|class| class.limit.hard.max(class.limit.soft))
            .max();
        let most = highest.unwrap_or_default().saturating_mul(2).saturating_add(1);
        let waiting = doc! { "status": "pending" };
        let pending = at.events.count_documents(waiting).limit(most).await?;
        known(at, class.measured_at, |known| {
            known.counted = Some((Instant::now(), pending));
            known.written = 0;
        });
        Ok(pending)
    }

    /// Events that the figures don't count yet.
    pub(super) fn wrote(&self, at: &Place<'_>, count: u64) {
        if let Some(class) = self.0.first() {
            known(at, class.measured_at, |known| known.written += count);
        }
    }
}

impl Class {
    fn read(class: &Document) -> Option<Self> {
        let number = |name: &str| match class.get(name)? {
            Bson::Int64(n) => u64::try_from(*n).ok(),
            Bson::Int32(n) => u64::try_from(*n).ok(),
            _ => None,
        };
        let topics = class.get_array("topics").map(Vec::as_slice).unwrap_or_default();
        let measured_at = *class.get_datetime("measured_at").ok()?;
        let now = *class.get_datetime("now").ok()?;
        let since = |at: DateTime| {
            let millis = now.timestamp_millis().saturating_sub(at.timestamp_millis());
            Duration::from_millis(u64::try_from(millis).unwrap_or(0))
        };
        Some(Self {
            name: class.get_str("class").ok()?.to_owned(),
            patterns: topics
                .iter()
                .filter_map(Bson::as_str)
                .map(str::to_owned)
                .collect(),
            limit: Limit {
                soft: number("soft"),
                hard: number("hard"),
                max_delay: Duration::from_millis(number("max_delay_ms").unwrap_or(0)),
            },
            pending: number("pending").unwrap_or(0),
            oldest: class.get_datetime("oldest_at").ok().map(|at| since(*at)),
            drained: class.get_f64("drained").unwrap_or(0.0),
            measured_at,
            age: since(measured_at),
        })
    }
}

/// What is known of this outbox, after a change to it. New figures begin a new count of what was written since.
fn known(at: &Place<'_>, since: DateTime, change: impl FnOnce(&mut Known)) -> Known {
    // The values are whole whatever happened to another holder of the lock.
    let mut all: MutexGuard<'_, _> = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_default();
    let known = all.entry(at.events.namespace().to_string()).or_insert(Known {
        since,
        written: 0,
        before: 0,
        counted: None,
    });
    if known.since != since {
        *known = Known {
            since,
            written: 0,
            before: known.written,
            counted: None,
        };
    }
    change(known);
    *known
}
