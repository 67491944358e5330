//! Whether there is room. MongoDB has no counter that a producer could read for the price of a look, so the relay's figures
//! count, with what this [`Outbox`](crate::Outbox) and its clones have written since. If they are old, because no relay runs or
//! it is stalled, the outbox counts the pending events itself.
//!
//! What is known is used for some seconds and renewed in the background: to look each time took 1.2 of 3.7 ms. It only ever
//! says that there is room. Who would be slowed or refused by it looks again first. All of it is asked outside of the
//! application's transaction, whose snapshot may be old.

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

/// Figures that are older are not relied on.
const FRESH: Duration = Duration::from_secs(3);
/// What is known is renewed when it is older than this and needed.
const RENEW_AFTER: Duration = Duration::from_secs(1);
/// Where that is not done so long after it was asked for, somebody waits for it.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// Nobody is slowed or refused by figures that were asked for longer ago.
const SURE_FOR: Duration = Duration::from_millis(250);
/// What was written in so short a time before something was counted may not have been committed, and counts besides. What a
/// transaction wrote that stays open for longer may be missed until it commits.
const OPEN_FOR: Duration = Duration::from_millis(250);

const PRIMARY: SelectionCriteria = SelectionCriteria::ReadPreference(ReadPreference::Primary);

struct Class {
    name: String,
    /// None: all topics.
    patterns: Vec<String>,
    limit: Limit,
    pending: u64,
    oldest: Option<Duration>,
    drained: f64,
    /// How old the figures were when they were asked for.
    age: Duration,
}

/// Waits where much of a topic's class waits, and refuses where too much does. Also tells where there is no outbox.
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
        if classes.asked.elapsed() > SURE_FOR {
            classes = look_if_possible(at).await?;
            standing = classes.standing(at, topics);
        }
        tokio::time::sleep(standing?).await;
    }
    Ok(())
}

/// Where the database can't be asked, what was seen last is good enough: the insert tells the application what is wrong, as
/// an error of its transaction.
async fn look_if_possible(at: &Place) -> Result<Classes, EnqueueError> {
    match (look(at).await, known::with(at, |known| known.classes.clone())) {
        (Err(EnqueueError::Database(_)), Some(classes)) => Ok(classes),
        (seen, _) => seen,
    }
}

/// How the class of a topic stands now.
pub(super) async fn of(at: &Place, topic: &str) -> Result<Option<Pressure>, EnqueueError> {
    Ok(look(at).await?.of(at, topic))
}

/// What was written, and is in no figures yet.
pub(super) fn wrote(at: &Place, events: u64) {
    known::with(at, |known| known.written.add(events));
}

/// Asked through the outbox's version, so that one command also tells whether there is an outbox: an insert would simply make
/// a collection, and nobody would read it.
async fn look(at: &Place) -> Result<Classes, EnqueueError> {
    let pipeline = [
        doc! { "$match": { "_id": "schema_version" } },
        doc! { "$lookup": {
            "from": at.beside("pressure"),
            "pipeline": [{ "$sort": { "_id": 1 } }, { "$set": { "now": "$$NOW" } }],
            "as": "pressure",
        } },
    ];
    let asked = Instant::now();
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
    if classes.are_old() {
        count(at, &classes).await?;
    } else {
        // The relay knows better again.
        known::with(at, |known| known.counted = None);
    }
    Ok(known::with(at, |known| known.learn(classes)))
}

/// All that waits, whatever its class, but no further than to the highest limit. The index on (status, created_at) has
/// everything that is asked for.
async fn count(at: &Place, classes: &Classes) -> Result<(), EnqueueError> {
    let gate = known::with(at, |known| known.gate.clone());
    // One at a time: a crowd would only take the longer.
    let _counting = match gate.try_lock() {
        Ok(counting) => counting,
        Err(_) if known::with(at, |known| known.counted.is_some_and(|counted| counted.is_good())) => {
            return Ok(());
        }
        Err(_) => gate.lock().await,
    };
    if known::with(at, |known| {
        known.counted.is_some_and(|counted| counted.is_recent())
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
    let began = Instant::now();
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
            took: began.elapsed(),
        });
    });
    Ok(())
}

impl Classes {
    /// What these topics have to wait, or the refusal of one.
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
        let (pending, drained) = known::with(at, |known| match known.counted {
            Some(counted) if class.is_old(self.asked) && counted.is_good() => {
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

    /// Whether the outbox must count for itself.
    fn are_old(&self) -> bool {
        self.all.iter().any(|class| class.is_old(self.asked))
    }
}

impl Class {
    fn is_old(&self, asked: Instant) -> bool {
        let limited = self.limit.soft.is_some() || self.limit.hard.is_some();
        limited && self.age + asked.elapsed() >= FRESH
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
