//! Records in memory.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox_relay::store::{
    StoreError,
    records::{Change, Record, RecordClaim, RecordKey, Records},
};
use tokio::time::Instant;

use super::MemoryStore;

/// By space, name and place.
pub(super) type Rows = BTreeMap<(String, String, i64), RecordRow>;

#[derive(Clone)]
pub(super) struct RecordRow {
    version: u64,
    claims: u32,
    value: String,
    written_at: Timestamp,
    due: Option<Instant>,
    expires: Option<Instant>,
}

#[async_trait]
impl Records for MemoryStore {
    async fn read(
        &self,
        space: &str,
        name: Option<&str>,
        limit: usize,
    ) -> Result<(Timestamp, Vec<Record>), StoreError> {
        let world = self.call().await?;
        let wanted = |key: &(String, String, i64)| key.0 == space && name.is_none_or(|name| key.1 == name);
        let rows = world.records.iter().filter(|(key, _)| wanted(key));
        let mut records: Vec<Record> = rows.map(|(key, row)| record(key, row)).collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.written_at));
        records.truncate(limit);
        Ok(((world.clock)(), records))
    }

    async fn write(&self, changes: &[Change]) -> Result<bool, StoreError> {
        let mut world = self.call().await?;
        let (now, written_at) = (Instant::now(), (world.clock)());
        let mut rows = world.records.clone();
        for change in changes {
            let key = key(&change.key);
            let before = rows.get(&key);
            if before.map_or(0, |row| row.version) != change.version {
                return Ok(false);
            }
            match &change.content {
                Some(content) => {
                    let row = RecordRow {
                        version: change.version + 1,
                        claims: before.map_or(0, |row| row.claims),
                        value: content.value.clone(),
                        written_at,
                        due: content.due_in.map(|wait| now + wait),
                        expires: content.keep_for.map(|keep| now + keep),
                    };
                    rows.insert(key, row);
                }
                None if before.is_none() => return Ok(false),
                None => {
                    rows.remove(&key);
                }
            }
        }
        world.records = rows;
        Ok(true)
    }

    async fn claim(&self, space: &str, lease: Duration) -> Result<RecordClaim, StoreError> {
        let mut world = self.call().await?;
        let mut firsts: BTreeMap<&str, (Instant, &(String, String, i64))> = BTreeMap::new();
        for (key, row) in world.records.iter().filter(|(key, _)| key.0 == space) {
            if let Some(due) = row.due {
                // In the order of places: the first one of a name stays.
                firsts.entry(&key.1).or_insert((due, key));
            }
        }
        let Some((due, key)) = firsts.into_values().min_by_key(|(due, _)| *due) else {
            return Ok(RecordClaim::Nothing { next: None });
        };
        let (now, key) = (Instant::now(), key.clone());
        if due > now {
            return Ok(RecordClaim::Nothing {
                next: Some(due - now),
            });
        }
        let Some(row) = world.records.get_mut(&key) else {
            return Ok(RecordClaim::Nothing { next: None });
        };
        (row.version, row.claims, row.due) = (row.version + 1, row.claims + 1, Some(now + lease));
        Ok(RecordClaim::One(Box::new(record(&key, row))))
    }

    async fn drop_expired(&self) -> Result<(), StoreError> {
        let now = Instant::now();
        let mut world = self.call().await?;
        world
            .records
            .retain(|_, row| row.expires.is_none_or(|expires| expires >= now));
        Ok(())
    }
}

fn key(key: &RecordKey) -> (String, String, i64) {
    (key.space.clone(), key.name.clone(), key.place)
}

fn record((space, name, place): &(String, String, i64), row: &RecordRow) -> Record {
    Record {
        key: RecordKey {
            space: space.clone(),
            name: name.clone(),
            place: *place,
        },
        version: row.version,
        claims: row.claims,
        value: row.value.clone(),
        written_at: row.written_at,
    }
}
