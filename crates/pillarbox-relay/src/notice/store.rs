//! The notices that were sent and the deliveries that are still due, in [`Records`].

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Telling, Told, ToldState};
use crate::{
    dead::{CAUSES_MAX, DeadGroup},
    store::{
        StoreError,
        records::{Change, Content, Record, RecordClaim, RecordKey, Records},
    },
};

/// One record for each fingerprint. Its version is the number of notices so far.
const NOTICES: &str = "notice";
/// One queue of deliveries for each fingerprint. The channel's key follows the prefix.
const DELIVERIES: &str = "notice-delivery/";
/// How long finished notices and deliveries are kept.
const KEPT: Duration = Duration::from_secs(30 * 86_400);

/// The notices of an outbox, shared by its relays. Times are those of the database's clock.
///
/// `tell` writes a notice and its deliveries, all or nothing, and only if no other relay wrote one for the same
/// fingerprint in the meantime. A claimed delivery belongs to one relay until its lease ends, `delivered` removes
/// it, or `failed` makes it due later or never again. On each channel, a later notice of a fingerprint waits until
/// the earlier one is delivered or given up.
#[derive(Clone)]
pub struct Notices {
    records: Arc<dyn Records>,
    kept: Duration,
}

/// A delivery that was claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    record: RecordKey,
    version: u64,
    pub fingerprint: String,
    pub id: Uuid,
    pub body: String,
    /// The number of attempts, including this one.
    pub attempts: u32,
}

/// The result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    One(Box<Delivery>),
    /// Nothing is due. `next` is the time until the next delivery is, if there is one.
    Nothing {
        next: Option<Duration>,
    },
}

/// The value of a notice's record.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredNotice {
    state: String,
    count: u64,
    /// In microseconds since 1970.
    last_died_at: i64,
    about: serde_json::Value,
}

/// The value of a delivery's record.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredDelivery {
    id: Uuid,
    body: String,
    /// The error of the last attempt.
    error: Option<String>,
}

impl Notices {
    pub fn new(records: Arc<dyn Records>) -> Self {
        Self { records, kept: KEPT }
    }

    /// Changes how long finished notices and deliveries are kept.
    pub fn kept_for(self, kept: Duration) -> Self {
        Self { kept, ..self }
    }

    /// The database's time, and the last notices, latest first: at most [`CAUSES_MAX`].
    pub async fn told(&self) -> Result<(Timestamp, Vec<Told>), StoreError> {
        let (now, records) = self.records.read(NOTICES, None, CAUSES_MAX).await?;
        Ok((now, records.into_iter().map(told).collect()))
    }

    /// Adds to each group when its last notice was sent, unless its cause is over.
    pub async fn add_told(&self, groups: &mut [DeadGroup]) -> Result<(), StoreError> {
        if groups.is_empty() {
            return Ok(());
        }
        let (_, told) = self.told().await?;
        let open = told.into_iter().filter(|told| told.state == ToldState::Open);
        let open: HashMap<String, Timestamp> = open.map(|told| (told.fingerprint, told.told_at)).collect();
        for group in groups {
            group.told_at = open.get(&group.fingerprint).copied();
        }
        Ok(())
    }

    /// False: another relay wrote a notice for this fingerprint first. Nothing was written.
    pub async fn tell(&self, telling: &Telling, channels: &[String]) -> Result<bool, StoreError> {
        let notice = StoredNotice {
            state: telling.state.as_str().to_owned(),
            count: telling.count,
            last_died_at: telling.last_died_at.as_microsecond(),
            about: telling.about.clone(),
        };
        let delivery = StoredDelivery {
            id: telling.id,
            body: telling.body.clone(),
            error: None,
        };
        let notice = Change {
            key: RecordKey::new(NOTICES, &telling.fingerprint),
            version: telling.before,
            content: Some(Content {
                value: json(&notice),
                due_in: None,
                keep_for: (telling.state == ToldState::Recovered).then_some(self.kept),
            }),
        };
        // The number of notices alone is not enough. When the record of a notice is dropped, the next one starts at
        // 1 again, while old deliveries may still exist. MongoDB's times have milliseconds.
        let place = telling.decided_at.as_millisecond() * 1_000 + (telling.before % 1_000) as i64;
        // Two channels with the same key share their deliveries: a second change of one record would be refused.
        let channels: BTreeSet<&String> = channels.iter().collect();
        let deliveries = channels.into_iter().map(|channel| Change {
            key: RecordKey {
                place,
                ..RecordKey::new(space(channel), &telling.fingerprint)
            },
            version: 0,
            content: Some(self.content(&delivery, Some(Duration::ZERO))),
        });
        let changes: Vec<Change> = [notice].into_iter().chain(deliveries).collect();
        self.records.write(&changes).await
    }

    /// Claims one due delivery of this channel.
    pub async fn claim(&self, channel: &str, lease: Duration) -> Result<Claim, StoreError> {
        Ok(match self.records.claim(&space(channel), lease).await? {
            RecordClaim::One(record) => Claim::One(Box::new(delivery(*record))),
            RecordClaim::Nothing { next } => Claim::Nothing { next },
        })
    }

    /// Removes a delivery that arrived. Does nothing if its lease ended and another relay claimed it.
    pub async fn delivered(&self, delivery: &Delivery) -> Result<(), StoreError> {
        self.replace(delivery, None).await
    }

    /// `retry_in`: `None` gives the delivery up. It is then kept with the error for a while.
    pub async fn failed(
        &self,
        delivery: &Delivery,
        retry_in: Option<Duration>,
        error: &str,
    ) -> Result<(), StoreError> {
        let stored = StoredDelivery {
            id: delivery.id,
            body: delivery.body.clone(),
            error: Some(error.to_owned()),
        };
        self.replace(delivery, Some(self.content(&stored, retry_in)))
            .await
    }

    /// Removes finished notices and old deliveries.
    pub async fn forget(&self) -> Result<(), StoreError> {
        self.records.drop_expired().await
    }

    async fn replace(&self, delivery: &Delivery, content: Option<Content>) -> Result<(), StoreError> {
        let change = Change {
            key: delivery.record.clone(),
            version: delivery.version,
            content,
        };
        self.records.write(&[change]).await.map(drop)
    }

    fn content(&self, delivery: &StoredDelivery, due_in: Option<Duration>) -> Content {
        Content {
            value: json(delivery),
            due_in,
            keep_for: Some(self.kept),
        }
    }
}

fn space(channel: &str) -> String {
    format!("{DELIVERIES}{channel}")
}

fn json(value: &impl Serialize) -> String {
    // Strings and numbers: writing them as JSON can't fail.
    serde_json::to_string(value).unwrap_or_default()
}

/// A person may have changed the value. An unreadable value causes a new notice.
fn told(record: Record) -> Told {
    let stored: StoredNotice = serde_json::from_str(&record.value).unwrap_or_default();
    Told {
        fingerprint: record.key.name,
        n: record.version,
        state: ToldState::from_stored(&stored.state),
        count: stored.count,
        last_died_at: Timestamp::from_microsecond(stored.last_died_at).unwrap_or_default(),
        told_at: record.written_at,
        about: stored.about,
    }
}

fn delivery(record: Record) -> Delivery {
    let stored: StoredDelivery = serde_json::from_str(&record.value).unwrap_or_default();
    Delivery {
        fingerprint: record.key.name.clone(),
        record: record.key,
        version: record.version,
        id: stored.id,
        body: stored.body,
        attempts: record.claims,
    }
}
