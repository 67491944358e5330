//! Backpressure on MongoDB, which has no counter that a producer could read cheaply. So the relay's figures
//! are used, plus what this [`Outbox`](crate::Outbox) and its clones have written since. If the figures are
//! old, because no relay runs or it is stalled, the outbox counts the pending events itself.
//!
//! The figures are cached for some seconds and refreshed in the background: reading them each time took 1.2
//! of 3.7 ms. Cached figures can only allow events. Before `enqueue` waits or refuses because of them, it
//! reads them again. All of this happens outside the application's transaction, because its snapshot may be
//! old.

pub(super) mod clock;
pub(super) mod known;

use std::time::{Duration, Instant};

use mongodb::{
    bson::{Bson, Document, doc},
    options::{ReadPreference, SelectionCriteria},
};

use self::known::{Classes, Counted};
use super::Place;
use crate::{
    enqueue::EnqueueError,
    pressure::{Limit, Pressure, matches},
};

/// Older figures are not used.
const FRESH: Duration = Duration::from_secs(3);
/// Cached figures older than this are refreshed when they are needed.
const RENEW_AFTER: Duration = Duration::from_secs(1);
/// If they are not refreshed after this time, the caller waits for new ones.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// Figures read longer ago than this never slow down or refuse a caller.
const SURE_FOR: Duration = Duration::from_millis(250);
/// Events written within this time before a count may not have been committed yet, so they are added to the
/// count. The events of a transaction that stays open for longer may be missed until it commits.
const OPEN_FOR: Duration = Duration::from_millis(250);

const PRIMARY: SelectionCriteria = SelectionCriteria::ReadPreference(ReadPreference::Primary);

struct Class {
    name: String,
    /// Empty: all topics.
    patterns: Vec<String>,
    limit: Limit,
    pending: u64,
    oldest: Option<Duration>,
    drained: f64,
    /// How old the figures were when they were read.
    age: Duration,
}

/// Waits if a topic's class is above its soft limit, and refuses if it is at its hard limit. Also reports if
/// there is no outbox.
pub(super) async fn make_room(
    at: &Place,
    topics: impl Iterator<Item = &str> + Clone,
) -> Result<(), EnqueueError> {
    let mut classes = match known::lately(at) {
        Some(classes) => classes,
        None => look_if_possible(at).await?,
    };
    if classes.all.is_empty() {
        return Ok(());
    }
    let mut standing = classes.standing(at, topics.clone());
    if standing.is_err() || standing.as_ref().is_ok_and(|delay| !delay.is_zero()) {
        if at.clock.now() - classes.asked > SURE_FOR {
            classes = look_if_possible(at).await?;
            standing = classes.standing(at, topics);
        }
        tokio::time::sleep(standing?).await;
    }
    Ok(())
}

/// If the database can't be reached, the last known figures are good enough: the insert reports the problem
/// to the application as an error of its transaction.
async fn look_if_possible(at: &Place) -> Result<Classes, EnqueueError> {
    match (look(at).await, known::with(at, |known| known.classes.clone())) {
        (Err(EnqueueError::Database(_)), Some(classes)) => Ok(classes),
        (seen, _) => seen,
    }
}

/// The pressure on a topic's class now.
pub(super) async fn of(at: &Place, topic: &str) -> Result<Option<Pressure>, EnqueueError> {
    Ok(look(at).await?.of(at, topic))
}

/// Counts events that were written and are in no figures yet.
pub(super) fn wrote(at: &Place, events: u64) {
    known::with(at, |known| known.written.add(at.clock.now(), events));
}

/// Reads the figures through the outbox's version document, so that one command also shows whether the outbox
/// exists. (An insert would simply create a collection that no relay reads.)
async fn look(at: &Place) -> Result<Classes, EnqueueError> {
    let pipeline = [
        doc! { "$match": { "_id": "schema_version" } },
        doc! { "$lookup": {
            "from": at.beside("pressure"),
            "pipeline": [{ "$sort": { "_id": 1 } }, { "$set": { "now": "$$NOW" } }],
            "as": "pressure",
        } },
    ];
    let asked = at.clock.now();
    let meta = at.database.collection::<Document>(&at.beside("meta"));
    let mut found = meta.aggregate(pipeline).selection_criteria(PRIMARY).await?;
    if !found.advance().await? {
        known::with(at, |known| known.classes = None);
        return Err(EnqueueError::NotMigrated {
            table: at.table.clone(),
            source: None,
        });
    }
    let found: Document = found.deserialize_current()?;
    let found = found.get_array("pressure").map(Vec::as_slice).unwrap_or_default();
    let classes = found.iter().filter_map(|class| Class::read(class.as_document()?));
    let classes = Classes {
        all: classes.collect(),
        asked,
    };
    if classes.are_old(at.clock.now()) {
        count(at, &classes).await?;
    } else {
        // The relay's figures are fresh again.
        known::with(at, |known| known.counted = None);
    }
    Ok(known::with(at, |known| known.learn(classes)))
}

/// Counts all pending events of any class, up to the highest limit. The index on (status, created_at) covers
/// the query.
async fn count(at: &Place, classes: &Classes) -> Result<(), EnqueueError> {
    let gate = known::with(at, |known| known.gate.clone());
    // One at a time: parallel counts would only take longer.
    let _counting = match gate.try_lock() {
        Ok(counting) => counting,
        Err(_) if known::with(at, |known| known.has_good_count(at.clock.now())) => return Ok(()),
        Err(_) => gate.lock().await,
    };
    let began = at.clock.now();
    if known::with(at, |known| {
        known.counted.is_some_and(|counted| counted.is_recent(began))
    }) {
        return Ok(());
    }
    let limits = classes.all.iter().map(|class| class.limit);
    let highest = limits.filter_map(|limit| limit.hard.max(limit.soft)).max();
    let most = highest
        .unwrap_or_default()
        .saturating_mul(2)
        .saturating_add(1)
        .min(i64::MAX as u64);
    let written = known::with(at, |known| known.written.before(began));
    let waiting = doc! { "status": "pending" };
    let pending = at
        .events
        .count_documents(waiting)
        .limit(most)
        .selection_criteria(PRIMARY);
    let pending = pending.await?;
    known::with(at, |known| {
        known.counted = Some(Counted {
            pending,
            began,
            written,
            took: at.clock.now() - began,
        });
    });
    Ok(())
}

impl Classes {
    /// How long events of these topics have to wait, or the refusal of one.
    fn standing<'a>(
        &self,
        at: &Place,
        topics: impl Iterator<Item = &'a str>,
    ) -> Result<Duration, EnqueueError> {
        let mut topics: Vec<&str> = topics.collect();
        topics.sort_unstable();
        topics.dedup();
        let mut delay = Duration::ZERO;
        for pressure in topics.into_iter().filter_map(|topic| self.of(at, topic)) {
            if let Some(busy) = EnqueueError::busy(&pressure) {
                return Err(busy);
            }
            delay = delay.max(pressure.delay);
        }
        Ok(delay)
    }

    fn of(&self, at: &Place, topic: &str) -> Option<Pressure> {
        let takes = |class: &&Class| {
            class.patterns.is_empty() || class.patterns.iter().any(|pattern| matches(pattern, topic))
        };
        let class = self.all.iter().find(takes)?;
        let now = at.clock.now();
        let (pending, drained) = known::with(at, |known| match known.counted {
            Some(counted) if class.is_old(self.asked, now) && counted.is_good(now) => {
                (counted.pending + (known.written.total() - counted.written), None)
            }
            _ => {
                let measured = self.asked.checked_sub(class.age);
                let counted = measured.map_or(0, |measured| known.written.before(measured));
                let since = known.written.total() - counted;
                (class.pending.saturating_add(since), Some(class.drained))
            }
        });
        Some(class.limit.judge(&class.name, pending, class.oldest, drained))
    }

    /// Whether the outbox has to count the events itself.
    fn are_old(&self, now: Instant) -> bool {
        self.all.iter().any(|class| class.is_old(self.asked, now))
    }
}

impl Class {
    fn is_old(&self, asked: Instant, now: Instant) -> bool {
        let limited = self.limit.soft.is_some() || self.limit.hard.is_some();
        limited && self.age + (now - asked) >= FRESH
    }

    fn read(class: &Document) -> Option<Self> {
        let number = |name: &str| match class.get(name)? {
            Bson::Int64(n) => u64::try_from(*n).ok(),
            Bson::Int32(n) => u64::try_from(*n).ok(),
            _ => None,
        };
        let topics = class.get_array("topics").map(Vec::as_slice).unwrap_or_default();
        let now = *class.get_datetime("now").ok()?;
        let since = |name: &str| {
            let at = *class.get_datetime(name).ok()?;
            let millis = now.timestamp_millis().saturating_sub(at.timestamp_millis());
            Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
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
            oldest: since("oldest_at"),
            drained: class.get_f64("drained").unwrap_or(0.0),
            age: since("measured_at")?,
        })
    }
}
