//! Whether there is room. MongoDB has no counter that a producer could read for the price of a look, so the relay's figures
//! count, with what this process has written since; where they are old, because no relay runs or it is stalled, the process
//! counts what waits for itself. What is known is used for some seconds and renewed in the background, so that a producer
//! seldom waits for it: to look each time took 1.2 of 3.7 ms.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
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
/// What is known is renewed when it is older than this and needed.
const RENEW_AFTER: Duration = Duration::from_secs(1);
/// Where that is not done so long after it was seen, somebody waits for it.
const KNOWN_FOR: Duration = Duration::from_secs(5);

/// The classes of topics in their order; none where nothing is limited.
#[derive(Clone)]
pub(super) struct Classes {
    all: Arc<[Class]>,
    seen: Instant,
}

struct Class {
    name: String,
    /// None: all topics.
    patterns: Vec<String>,
    limit: Limit,
    pending: u64,
    oldest: Option<Duration>,
    drained: f64,
    measured_at: DateTime,
    /// How old the figures were when they were seen.
    age: Duration,
}

/// What this process knows of an outbox, by its namespace.
static KNOWN: Mutex<Option<HashMap<String, Known>>> = Mutex::new(None);

#[derive(Default)]
struct Known {
    /// As they were last seen. That they were says that there is an outbox.
    classes: Option<Classes>,
    renewing: bool,
    count: Option<Count>,
}

#[derive(Clone, Copy)]
struct Count {
    /// The figures that `written` counts from; `before` was written between those before and them, and may not be in them.
    since: DateTime,
    written: u64,
    before: u64,
    /// The latest count of one's own.
    counted: Option<Counted>,
}

#[derive(Clone, Copy)]
struct Counted {
    pending: u64,
    when: Instant,
    took: Duration,
}

impl Counted {
    /// Counting a large backlog takes long, and is not to be done all the time.
    fn is_to_be_renewed(&self) -> bool {
        self.when.elapsed() > RENEW_AFTER.max(self.took * 50)
    }

    fn is_good(&self) -> bool {
        self.when.elapsed() < KNOWN_FOR.max(self.took * 100)
    }
}

impl Classes {
    pub(super) fn read(at: &Place, found: &Document) -> Self {
        let classes = found.get_array("pressure").map(Vec::as_slice).unwrap_or_default();
        let classes = classes
            .iter()
            .filter_map(|class| Class::read(class.as_document()?));
        let classes = Self {
            all: classes.collect(),
            seen: Instant::now(),
        };
        known(at, |known| known.classes = Some(classes.clone()));
        classes
    }

    /// Whether this process must count for itself.
    fn are_old(&self, class: &Class) -> bool {
        let limited = class.limit.soft.is_some() || class.limit.hard.is_some();
        limited && class.age + self.seen.elapsed() >= FRESH
    }

    /// Waits where much of a topic's class waits, and refuses where too much does.
    pub(super) async fn make_room<'a>(
        &self,
        at: &Place,
        topics: impl Iterator<Item = &'a str>,
    ) -> Result<(), EnqueueError> {
        if self.all.is_empty() {
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
    pub(super) async fn of(&self, at: &Place, topic: &str) -> Result<Option<Pressure>, EnqueueError> {
        let takes = |class: &&Class| {
            class.patterns.is_empty() || class.patterns.iter().any(|pattern| matches(pattern, topic))
        };
        let Some(class) = self.all.iter().find(takes) else {
            return Ok(None);
        };
        let count = count(at, class.measured_at, |_| ());
        if !self.are_old(class) {
            let pending = class
                .pending
                .saturating_add(count.written)
                .saturating_add(count.before);
            let (oldest, drained) = (class.oldest, Some(class.drained));
            return Ok(Some(class.limit.judge(&class.name, pending, oldest, drained)));
        }
        let pending = match count.counted.filter(Counted::is_good) {
            Some(counted) => counted.pending.saturating_add(count.written),
            None => self.count_waiting(at, class).await?,
        };
        Ok(Some(class.limit.judge(&class.name, pending, class.oldest, None)))
    }

    /// All that waits, whatever its class, but no further than to the highest limit. Outside of the transaction, whose snapshot
    /// may be old. The index on (status, created_at) has everything that is asked for.
    async fn count_waiting(&self, at: &Place, class: &Class) -> Result<u64, EnqueueError> {
        let highest = self
            .all
            .iter()
            .filter_map(|class| class.limit.hard.max(class.limit.soft))
            .max();
        let most = highest.unwrap_or_default().saturating_mul(2).saturating_add(1);
        let waiting = doc! { "status": "pending" };
        let began = Instant::now();
        let counted_before = count(at, class.measured_at, |_| ()).written;
        let pending = at.events.count_documents(waiting).limit(most).await?;
        count(at, class.measured_at, |count| {
            count.counted = Some(Counted {
                pending,
                when: Instant::now(),
                took: began.elapsed(),
            });
            // What was written meanwhile may not be in it.
            count.written = count.written.saturating_sub(counted_before);
        });
        Ok(pending)
    }

    /// Events that the figures don't count yet.
    pub(super) fn wrote(&self, at: &Place, events: u64) {
        if let Some(class) = self.all.first() {
            count(at, class.measured_at, |count| count.written += events);
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

/// What any producer of this process has seen of the outbox.
pub(super) fn seen_lately(at: &Place) -> Option<Classes> {
    let (classes, renew) = known(at, |known| {
        let classes = known.classes.clone()?;
        if classes.seen.elapsed() > KNOWN_FOR {
            return None;
        }
        let renew = classes.seen.elapsed() > RENEW_AFTER && !std::mem::replace(&mut known.renewing, true);
        Some((classes, renew))
    })?;
    if renew {
        let at = at.clone();
        tokio::spawn(async move {
            // Who finds nothing known for too long asks for himself, and is told what is wrong.
            let _ = look_again(&at).await;
            known(&at, |known| known.renewing = false);
        });
    }
    Some(classes)
}

/// Outside of any transaction.
async fn look_again(at: &Place) -> Result<(), EnqueueError> {
    let mut found = at.question(&[]).await?;
    if !found.advance().await? {
        known(at, |known| known.classes = None);
        return Ok(());
    }
    let classes = Classes::read(at, &found.deserialize_current()?);
    if let Some(class) = classes.all.iter().find(|class| classes.are_old(class)) {
        let counted = count(at, class.measured_at, |_| ()).counted;
        if counted.is_none_or(|counted| counted.is_to_be_renewed()) {
            classes.count_waiting(at, class).await?;
        }
    }
    Ok(())
}

/// What was written to this outbox, after a change to it. New figures begin a new count.
fn count(at: &Place, since: DateTime, change: impl FnOnce(&mut Count)) -> Count {
    known(at, |known| {
        let before = known.count.filter(|count| count.since != since);
        let count = known.count.get_or_insert(Count {
            since,
            written: 0,
            before: 0,
            counted: None,
        });
        if let Some(before) = before {
            *count = Count {
                since,
                written: 0,
                before: before.written,
                counted: None,
            };
        }
        change(count);
        *count
    })
}

fn known<T>(at: &Place, act: impl FnOnce(&mut Known) -> T) -> T {
    // The values are whole whatever happened to another holder of the lock.
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_default();
    act(all.entry(at.events.namespace().to_string()).or_default())
}
